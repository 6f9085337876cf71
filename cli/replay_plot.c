/* SPDX-License-Identifier: MIT */
/* Two panels side by side over the same axis of slots. */
#include "replay_plot.h"

#include <inttypes.h>
#include <math.h>
#include <stdint.h>

#define WIDTH 960
#define HEIGHT 420
#define LEFT 70
#define TOP 50
#define PANEL_WIDTH 350
#define PANEL_HEIGHT 260
#define GAP 110
/* Of the legend, which has a row below for those that the picture is not wide enough for. A name
 * stands behind a piece of its line. */
#define NAME_WIDTH 170
#define SAMPLE_WIDTH 36
#define ROW_HEIGHT 18
#define NAMES_A_ROW ((WIDTH - LEFT) / NAME_WIDTH)

typedef struct panel {
    FILE *out;
    double left; /* of the picture */
    double max_x, max_y;
    const char *name;
    const char *format; /* of a tick */
} panel;

#define N_COLOURS 6
/* Those of Okabe and Ito, which whoever does not see some colours can tell apart; without yellow,
 * which is faint on white, and black, which is Belady's. */
static const char *const colours[N_COLOURS] = {"#0072b2", "#d55e00", "#009e73",
                                               "#cc79a7", "#e69f00", "#56b4e9"};

/* In place of a line's index. */
#define BELADY SIZE_MAX

static const char *colour_of(size_t i)
{
    return i == BELADY ? "#000" : colours[i % N_COLOURS];
}

/* How a line is drawn, by attributes: colours come again with a dash, and one dot more each time.
 */
static void put_style(FILE *out, size_t i)
{
    fprintf(out, " fill=\"none\" stroke-width=\"2\" stroke=\"%s\"", colour_of(i));
    if (i == BELADY) {
        fputs(" stroke-dasharray=\"4 3\"", out);
        return;
    }
    for (size_t j = 0; j < i / N_COLOURS; j++)
        fputs(j == 0 ? " stroke-dasharray=\"9 3" : " 2 3", out);
    if (i >= N_COLOURS)
        fputc('"', out);
}

static double x_of(const panel *p, double x)
{
    return p->left + PANEL_WIDTH * x / p->max_x;
}

static double y_of(const panel *p, double y)
{
    return TOP + PANEL_HEIGHT * (1 - y / p->max_y);
}

static double share_of_hits(const mf_replay_result *r)
{
    const double n = (double)(r->n_expert_hits + r->n_expert_misses);
    return n > 0 ? 100 * (double)r->n_expert_hits / n : 0;
}

static double share_of_best(const mf_replay_result *r)
{
    const double n = (double)(r->n_expert_hits + r->n_expert_misses);
    return n > 0 ? 100 * (double)r->n_best_hits / n : 0;
}

static double speed(const mf_replay_result *r)
{
    return r->seconds > 0 ? (double)r->n_tokens / r->seconds : 0;
}

static void draw_axes(const panel *p)
{
    fprintf(p->out,
            "<rect x=\"%.1f\" y=\"%d\" width=\"%d\" height=\"%d\" fill=\"none\" "
            "stroke=\"#888\"/>\n<text x=\"%.1f\" y=\"%d\" class=\"name\">%s</text>\n",
            p->left, TOP, PANEL_WIDTH, PANEL_HEIGHT, p->left, TOP - 10, p->name);
    for (int i = 0; i <= 4; i++) {
        const double y = p->max_y * i / 4, x = p->max_x * i / 4;
        fprintf(p->out,
                "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\">",
                p->left, p->left + PANEL_WIDTH, y_of(p, y), y_of(p, y), p->left - 6,
                y_of(p, y) + 4);
        fprintf(p->out, "%.*f%s</text>\n", p->max_y < 20 ? 1 : 0, y, p->format);
        fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%.0f</text>\n",
                x_of(p, x), TOP + PANEL_HEIGHT + 18, x);
    }
    fprintf(p->out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">expert slots</text>\n",
            p->left + PANEL_WIDTH / 2.0, TOP + PANEL_HEIGHT + 36);
}

/* line: its index, or BELADY. */
static void draw_line(const panel *p, const mf_replay_result *results, size_t n,
                      double (*value)(const mf_replay_result *), size_t line)
{
    fputs("<polyline", p->out);
    put_style(p->out, line);
    fputs(" points=\"", p->out);
    for (size_t i = 0; i < n; i++)
        fprintf(p->out, "%.1f,%.1f ", x_of(p, (double)results[i].n_slots),
                y_of(p, value(&results[i])));
    fputs("\"/>\n", p->out);
    for (size_t i = 0; i < n; i++)
        fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                x_of(p, (double)results[i].n_slots), y_of(p, value(&results[i])), colour_of(line));
}

static double name_x(size_t i)
{
    return LEFT + NAME_WIDTH * (double)(i % NAMES_A_ROW);
}

static double name_y(size_t i)
{
    const size_t row = i / NAMES_A_ROW;
    return HEIGHT - 30 + ROW_HEIGHT * (double)row;
}

/* A piece of a line, at a place of the legend; what it is called comes behind it. */
static void draw_sample(FILE *out, size_t place, size_t line)
{
    const double x = name_x(place), y = name_y(place) + 6;
    fputs("<line", out);
    put_style(out, line);
    fprintf(out, " x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%.1f\" y=\"%.1f\">",
            x, x + SAMPLE_WIDTH, y, y, x + SAMPLE_WIDTH + 5, y + 5);
}

static void draw_legend(FILE *out, const mf_replay_line *lines, size_t n_lines)
{
    for (size_t i = 0; i < n_lines; i++) {
        draw_sample(out, i, i);
        fprintf(out, "%s, %s</text>\n", lines[i].policy, mf_predict_name(lines[i].predict));
    }
    draw_sample(out, n_lines, BELADY);
    fputs("Belady</text>\n", out);
}

static double most(const mf_replay_line *lines, size_t n_lines, size_t n,
                   double (*value)(const mf_replay_result *))
{
    double max = 0;
    for (size_t i = 0; i < n_lines; i++)
        for (size_t j = 0; j < n; j++)
            max = fmax(max, value(&lines[i].results[j]));
    return max > 0 ? max : 1;
}

static void escape(FILE *out, const char *text)
{
    for (; *text; text++)
        switch (*text) {
        case '<':
            fputs("&lt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        default:
            fputc((unsigned char)*text < 32 ? ' ' : *text, out);
        }
}

void mf_replay_plot(FILE *out, const char *title, const mf_replay_line *lines, size_t n_lines,
                    size_t n)
{
    const double slots = (double)lines[0].results[n - 1].n_slots;
    const panel hits = {out, LEFT, slots, 100, "requests that hit", " %"};
    const panel speeds = {out,
                          LEFT + PANEL_WIDTH + GAP,
                          slots,
                          1.1 * most(lines, n_lines, n, speed),
                          "tokens a second",
                          ""};
    fprintf(out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "font-family=\"sans-serif\" font-size=\"12\">\n<style>.name{font-weight:bold}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"20\">",
            WIDTH, name_y(n_lines) + 30, LEFT);
    escape(out, title);
    fputs("</text>\n", out);
    draw_axes(&hits);
    draw_axes(&speeds);
    draw_line(&hits, lines[0].results, n, share_of_best, BELADY);
    for (size_t i = 0; i < n_lines; i++) {
        draw_line(&hits, lines[i].results, n, share_of_hits, i);
        draw_line(&speeds, lines[i].results, n, speed, i);
    }
    draw_legend(out, lines, n_lines);
    fputs("</svg>\n", out);
}
