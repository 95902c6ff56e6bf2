#include <fmt/format.h>

#include <cctype>

#include "page/html.h"

namespace smp::page {
namespace {

// Colours keep at least 3:1 against the page in both schemes; text on them is never needed, each
// has its name beside it in the legend.
constexpr std::string_view kStyle = R"css(
:root { color-scheme: light dark;
  --page: #fcfcfb; --ink: #1d2125; --soft: #5d666f; --line: #d5d9dd; --panel: #f2f3f4; --limit: #b3261e;
  --c0: #2f6db5; --c1: #d9822b; --c2: #3d8f5f; --c3: #8a5bb0; --c4: #b8503f; --c5: #6f8c2f;
  --c6: #1f8a99; --c7: #c06090; --c8: #7a6a58; --c9: #4f5fa8; --c10: #a88a1d; --c11: #77808a; }
@media (prefers-color-scheme: dark) { :root {
  --page: #16191c; --ink: #e7eaed; --soft: #9aa4ad; --line: #363c42; --panel: #1f2327; --limit: #ff8a80;
  --c0: #6ea8ec; --c1: #f0a75c; --c2: #6cc492; --c3: #bb93dd; --c4: #e58b7a; --c5: #a7c562;
  --c6: #5cc3d1; --c7: #e795bd; --c8: #b3a28e; --c9: #919fe0; --c10: #d8bd55; --c11: #a4adb6; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem; max-width: 76rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .3rem; overflow-wrap: anywhere; }
h2 { font-size: 1.05rem; margin: 2rem 0 .6rem; border-bottom: 1px solid var(--line); padding-bottom: .2rem; }
.summary { color: var(--soft); margin: 0; white-space: pre-line; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .25rem .7rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th.number { text-align: right; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th { color: var(--soft); font-weight: 600; }
.bars { display: grid; grid-template-columns: minmax(6rem, max-content) 1fr; gap: .45rem .8rem; align-items: center; }
.bars .name { font-size: .9rem; } .bars .name small { color: var(--soft); display: block; }
.bar { position: relative; height: 1.5rem; background: var(--panel); display: flex; }
.bar span { height: 100%; border-right: 1px solid var(--page); }
.limit { position: absolute; top: -.2rem; bottom: -.2rem; width: 2px; background: var(--limit); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; margin: .7rem 0 0; padding: 0; list-style: none; font-size: .88rem; }
.legend i { display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem; vertical-align: -1px; }
.limit-text { color: var(--limit); font-size: .88rem; margin: .5rem 0 0; }
details { margin-top: .7rem; } summary { cursor: pointer; color: var(--soft); }
.timeline { display: grid; grid-template-columns: max-content 1fr; gap: 2px .6rem; align-items: center; font-size: .85rem; }
.timeline .span { display: flex; justify-content: space-between; color: var(--soft); }
.timeline svg { width: 100%; height: 1.1rem; background: var(--panel); display: block; }
svg text { fill: var(--soft); font: 12px system-ui, sans-serif; }
svg .axis { stroke: var(--line); } svg .tick { stroke: var(--line); stroke-dasharray: 2 4; }
.level { stroke: var(--limit); stroke-dasharray: 7 4; stroke-width: 1.5; }
.dim { opacity: .62; }
.point { fill: var(--c11); } .front { fill: var(--c0); } .chosen { fill: var(--limit); }
.frontline { fill: none; stroke: var(--c0); stroke-width: 1.5; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .85rem; }
@media (max-width: 40rem) { body { padding: .8rem; } .bars { grid-template-columns: 1fr; gap: .2rem; }
  .bar { margin-bottom: .5rem; } }
@media print { body { max-width: none; } details { display: none; } }
)css";

constexpr size_t kLongestNumber = 20;

std::string colour_classes() {
  std::string css;
  for (int i = 0; i < kColours; ++i)
    css += fmt::format(
        ".b{0} {{ background: var(--c{0}); }} .k{0} {{ fill: var(--c{0}); }} "
        ".s{0} {{ stroke: var(--c{0}); fill: none; stroke-width: 1.6; }}\n",
        i);
  return css;
}

bool is_number(const std::string& cell) {
  return !cell.empty() && cell.size() <= kLongestNumber &&
         (std::isdigit(static_cast<unsigned char>(cell[0])) != 0 ||
          ((cell[0] == '-' || cell[0] == '+') && cell.size() > 1));
}

}  // namespace

std::string escape(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string table(const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows) {
  std::string out = "<div class=\"wide\"><table><thead><tr>";
  for (size_t column = 0; column < head.size(); ++column) {
    const bool numbers = !rows.empty() && is_number(rows.front()[column]);
    out += fmt::format("<th{}>{}</th>", numbers ? " class=\"number\"" : "", escape(head[column]));
  }
  out += "</tr></thead><tbody>\n";
  for (const std::vector<std::string>& row : rows) {
    out += "<tr>";
    for (const std::string& cell : row) {
      out += fmt::format("<td{}>{}</td>", is_number(cell) ? " class=\"number\"" : "", escape(cell));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string page(const std::string& title, const std::string& summary,
                 const std::vector<Section>& sections, const std::string& origin) {
  std::string out = fmt::format(
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n<h1>{0}</h1>\n"
      "<p class=\"summary\">{3}</p>\n",
      escape(title), kStyle, colour_classes(), escape(summary));
  for (const Section& section : sections) {
    out +=
        fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escape(section.title), section.body);
  }
  return out + fmt::format("<footer>{}</footer>\n</body>\n</html>\n", escape(origin));
}

}  // namespace smp::page
