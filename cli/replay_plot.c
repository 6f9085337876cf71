/* SPDX-License-Identifier: MIT */
/* Two panels side by side over the same axis of slots. */
#include "replay_plot.h"

#include <inttypes.h>
#include <math.h>

#define WIDTH 960
#define HEIGHT 420
#define LEFT 70
#define TOP 50
#define PANEL_WIDTH 350
#define PANEL_HEIGHT 260
#define GAP 110
/* Of the legend, which has a row below for those that the picture is not wide enough for. */
#define NAME_WIDTH 150
#define ROW_HEIGHT 18
#define NAMES_A_ROW ((WIDTH - LEFT) / NAME_WIDTH)

typedef struct panel {
    FILE *out;
    double left; /* of the picture */
    double max_x, max_y;
    const char *name;
    const char *format; /* of a tick */
} panel;

static const char *const colours[] = {"#1b6ca8", "#c8553d", "#3a7d44",
                                      "#8e5ea2", "#b8860b", "#444444"};

static const char *colour_of(size_t i)
{
    return colours[i % (sizeof colours / sizeof *colours)];
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

static void draw_line(const panel *p, const mf_replay_result *results, size_t n,
                      double (*value)(const mf_replay_result *), const char *colour,
                      const char *dashes)
{
    fprintf(p->out, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s points=\"", colour,
            dashes);
    for (size_t i = 0; i < n; i++)
        fprintf(p->out, "%.1f,%.1f ", x_of(p, (double)results[i].n_slots),
                y_of(p, value(&results[i])));
    fputs("\"/>\n", p->out);
    for (size_t i = 0; i < n; i++)
        fprintf(p->out, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3\" fill=\"%s\"/>\n",
                x_of(p, (double)results[i].n_slots), y_of(p, value(&results[i])), colour);
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

static void draw_legend(FILE *out, const mf_replay_line *lines, size_t n_lines)
{
    for (size_t i = 0; i < n_lines; i++)
        fprintf(out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                "<text x=\"%.1f\" y=\"%.1f\">%s, %s</text>\n",
                name_x(i), name_y(i), colour_of(i), name_x(i) + 17, name_y(i) + 11, lines[i].policy,
                mf_predict_name(lines[i].predict));
    const double x = name_x(n_lines), y = name_y(n_lines);
    fprintf(
        out,
        "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#000\" "
        "stroke-dasharray=\"4 3\" stroke-width=\"2\"/><text x=\"%.1f\" y=\"%.1f\">Belady</text>\n",
        x, x + 14, y + 6, y + 6, x + 19, y + 11);
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
    draw_line(&hits, lines[0].results, n, share_of_best, "#000", " stroke-dasharray=\"4 3\"");
    for (size_t i = 0; i < n_lines; i++) {
        draw_line(&hits, lines[i].results, n, share_of_hits, colour_of(i), "");
        draw_line(&speeds, lines[i].results, n, speed, colour_of(i), "");
    }
    draw_legend(out, lines, n_lines);
    fputs("</svg>\n", out);
}
