# SPDX-License-Identifier: MIT
# Draws results.tsv of compare.sh: tokens/s over memory, for a light and a dark page.
# Usage: awk -f plot.awk results.tsv
# Its lines "# NAME<tab>VALUE" say: title; bytes (read a token with nothing held), dense and experts (GiB),
# for the line of what the drive alone would allow; they may also be given by -v.
BEGIN { FS = "\t"; W = 760; H = 330; L = 64; R = 150; T = 52; B = 56 }
/^# / {
    name = substr($1, 3)
    if (name == "title" && title == "") title = $2
    if (name == "bytes" && bytes == "") bytes = $2
    if (name == "dense" && dense == "") dense = $2
    if (name == "experts" && experts == "") experts = $2
    next
}
/^ram_gib/ || $1 == "" || $5 != "" { next } # a fifth column has a GPU, or another machine
{
    n++
    ram[n] = $1; ours[n] = $2; theirs[n] = $3; drive[n] = $4
    max_x = $1 > max_x ? $1 : max_x
    max_y = $2 > max_y ? $2 : max_y
    max_y = $3 > max_y ? $3 : max_y
}
function x(v) { return L + (W - L - R) * v / (max_x * 1.03) }
function y(v) { return H - B - (H - B - T) * (v > top ? top : v) / top }
function line(values, class, label,   i, path, last) {
    for (i = 1; i <= n; i++)
        if (values[i] != "") {
            path = path sprintf("%s%.1f %.1f", path == "" ? "M" : " L", x(ram[i]), y(values[i]))
            last = i
        }
    if (path == "")
        return
    printf "<path class=\"line %s\" d=\"%s\"/>\n", class, path
    for (i = 1; i <= n; i++)
        if (values[i] != "")
            printf "<circle class=\"dot %s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"><title>%s: %.2f tokens/s in %s GiB</title></circle>\n",
                class, x(ram[i]), y(values[i]), label, values[i], ram[i]
    if (last == n)
        printf "<text class=\"name %s\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x(ram[last]) + 12, y(values[last]) + 4, label
    else # above it, where other lines do not go on
        printf "<text class=\"name %s\" text-anchor=\"end\" x=\"%.1f\" y=\"%.1f\">%s</text>\n", class, x(ram[last]) - 4, y(values[last]) - 8, label
}
END {
    if (n == 0)
        exit 1
    step = max_y > 20 ? 5 : max_y > 8 ? 2 : max_y > 3 ? 1 : 0.5
    top = (int(max_y / step) + 1) * step
    printf "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\" aria-label=\"%s\">\n", W, H, W, H, title
    print "<style>"
    print "text { font: 13px system-ui, sans-serif; fill: #333 } .title { font-weight: 600; font-size: 15px }"
    print ".line { fill: none; stroke-width: 2.5 } .grid { stroke: #ddd } .page { fill: #fff }"
    print ".line.a { stroke: #1b6ca8 } .line.b { stroke: #c8553d } .line.c { stroke: #777; stroke-dasharray: 5 4; stroke-width: 1.5 }"
    print ".dot.a, .name.a { fill: #1b6ca8 } .dot.b, .name.b { fill: #c8553d } .dot.c { fill: none } .name.c { fill: #777 }"
    print "@media (prefers-color-scheme: dark) { .page { fill: #14171a } text { fill: #ccd } .grid { stroke: #333a40 }"
    print ".line.a { stroke: #62b0e8 } .line.b { stroke: #f08a70 } .line.c { stroke: #8a949c } .dot.a, .name.a { fill: #62b0e8 } .dot.b, .name.b { fill: #f08a70 } .name.c { fill: #8a949c } }"
    print "</style>"
    printf "<rect class=\"page\" width=\"%d\" height=\"%d\"/>\n<text class=\"title\" x=\"%d\" y=\"26\">%s</text>\n", W, H, L, title
    for (v = 0; v <= top + step / 2; v += step)
        printf "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>\n", L, W - R, y(v), y(v), L - 8, y(v) + 4, v
    for (i = 1; i <= n; i++)
        printf "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>\n", x(ram[i]), H - B + 20, ram[i]
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">GiB of memory, the whole program</text>\n", (L + W - R) / 2, H - 12
    printf "<text x=\"%d\" y=\"%d\" text-anchor=\"start\">tokens/s</text>\n", 8, T - 16
    for (i = 1; i <= n && bytes > 0; i++) {
        held = (ram[i] - dense) / experts
        held = held < 0 ? 0 : held
        if (held < 1 && drive[i] > 0)
            limit[i] = drive[i] / (bytes * (1 - held))
        limit[i] = limit[i] != "" && limit[i] <= top ? limit[i] : ""
    }
    line(limit, "c", "the drive alone")
    line(theirs, "b", "llama.cpp")
    line(ours, "a", "moeflux")
    print "</svg>"
}
