#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "page/html.h"
#include "page/html_axes.h"

namespace smp::page {
namespace {

int64_t sum_of(const Bar& bar) {
  int64_t sum = 0;
  for (const Segment& segment : bar.segments) sum += segment.value;
  return sum;
}

std::string bar_html(const Bar& bar, std::string_view unit, int64_t scale, int64_t limit) {
  std::string out = fmt::format(
      "<div class=\"name\">{}<small>{}</small></div>\n<div class=\"bar\" data-name=\"{}\">",
      escape(bar.name), escape(bar.text), escape(bar.name));
  const auto share = [&](int64_t value) {
    return 100.0 * static_cast<double>(value) / static_cast<double>(scale);
  };
  for (const Segment& segment : bar.segments) {
    if (segment.value <= 0) continue;
    out += fmt::format(
        "<span class=\"b{}\" style=\"width:{:.3f}%\" data-name=\"{}\" data-{}=\"{}\" "
        "title=\"{}\"></span>",
        segment.colour % kColours, share(segment.value), escape(segment.name), unit, segment.value,
        escape(fmt::format("{}: {}{}{}", segment.name, segment.text,
                           segment.comment.empty() ? "" : " = ", segment.comment)));
  }
  if (limit > 0) out += fmt::format("<b class=\"limit\" style=\"left:{:.3f}%\"></b>", share(limit));
  return out + "</div>\n";
}

// Names in the order of their first appearance, with the colour they have there.
std::string legend(const std::vector<Bar>& bars) {
  std::vector<const Segment*> seen;
  for (const Bar& bar : bars) {
    for (const Segment& segment : bar.segments) {
      const bool known = std::any_of(seen.begin(), seen.end(), [&](const Segment* other) {
        return other->name == segment.name;
      });
      if (!known && segment.value > 0) seen.push_back(&segment);
    }
  }
  std::string out = "<ul class=\"legend\">";
  for (const Segment* segment : seen) {
    out += fmt::format("<li><i class=\"b{}\"></i>{}</li>", segment->colour % kColours,
                       escape(segment->name));
  }
  return out + "</ul>\n";
}

Scale scale_of(const std::vector<Point>& points, double Point::*value) {
  Scale scale{0, 0};
  for (const Point& point : points) scale.high = std::max(scale.high, point.*value);
  scale.high *= 1.05;
  if (scale.high <= 0) scale.high = 1;
  return scale;
}

}  // namespace

std::string stacked_bars(const std::vector<Bar>& bars, std::string_view unit, int64_t limit,
                         const std::string& limit_text) {
  int64_t scale = std::max<int64_t>(limit, 1);
  for (const Bar& bar : bars) scale = std::max(scale, sum_of(bar));
  std::string out = "<div class=\"bars\">\n";
  for (const Bar& bar : bars) out += bar_html(bar, unit, scale, limit);
  out += "</div>\n";
  if (limit > 0) out += fmt::format("<p class=\"limit-text\">| {}</p>\n", escape(limit_text));
  out += legend(bars);

  std::vector<std::vector<std::string>> rows;
  for (const Bar& bar : bars) {
    for (const Segment& segment : bar.segments) {
      rows.push_back(
          {bar.name, segment.name, segment.text, std::to_string(segment.value), segment.comment});
    }
  }
  return out + "<details><summary>the same as a table</summary>\n" +
         table({"of", "term", "size", std::string(unit), "formula"}, rows) + "</details>\n";
}

std::string timeline(const std::vector<Box>& boxes, const std::vector<std::string>& rows,
                     int64_t span_ns, std::string (*time_text)(double seconds),
                     const std::vector<Meaning>& meanings, const std::string& note) {
  std::vector<std::string> lines(rows.size());
  const double span = static_cast<double>(std::max<int64_t>(span_ns, 1));
  for (const Box& box : boxes) {
    lines[static_cast<size_t>(box.row)] += fmt::format(
        "<rect class=\"k{}{}\" x=\"{:.3f}\" width=\"{:.3f}\" height=\"20\" data-begin-ns=\"{}\" "
        "data-end-ns=\"{}\"><title>{}</title></rect>",
        box.colour, box.chunk % 2 == 1 ? " dim" : "",
        1000.0 * static_cast<double>(box.begin_ns) / span,
        std::max(0.2, 1000.0 * static_cast<double>(box.end_ns - box.begin_ns) / span - 0.4),
        box.begin_ns, box.end_ns, escape(box.name));
  }
  std::string out = "<div class=\"timeline\">\n";
  for (size_t row = 0; row < lines.size(); ++row) {
    out += fmt::format(
        "<span>{0}</span><svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" role=\"img\" "
        "aria-label=\"{0}\">{1}</svg>\n",
        escape(rows[row]), lines[row]);
  }
  out += "<span></span><div class=\"span\">";
  for (const double part : {0.0, 0.25, 0.5, 0.75, 1.0})
    out += fmt::format("<span>{}</span>", escape(time_text(part * span * 1e-9)));
  out += "</div></div>\n<ul class=\"legend\">";
  for (const Meaning& meaning : meanings)
    out += fmt::format("<li><i class=\"b{}\"></i>{}</li>", meaning.colour, escape(meaning.name));
  return out + fmt::format("<li>{}</li></ul>\n", escape(note));
}

std::string scatter(const std::vector<Point>& points, const Axis& x, const Axis& y) {
  const Scale across = scale_of(points, &Point::x);
  const Scale up = scale_of(points, &Point::y);
  const Plot plot{across, up};
  std::string out = plot.begin(x, y);
  std::vector<const Point*> front;
  for (const Point& point : points) {
    if (point.front) front.push_back(&point);
  }
  std::sort(front.begin(), front.end(), [](const Point* a, const Point* b) { return a->x < b->x; });
  if (front.size() > 1) {
    std::string line;
    for (const Point* point : front)
      line += fmt::format("{:.1f},{:.1f} ", plot.x(point->x), plot.y(point->y));
    out += fmt::format("<polyline class=\"frontline\" points=\"{}\"/>\n", line);
  }
  for (const Point& point : points) {
    out += fmt::format(
        "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>\n",
        point.chosen  ? "chosen"
        : point.front ? "front"
                      : "point",
        plot.x(point.x), plot.y(point.y), point.chosen ? 6 : 4, escape(point.name));
  }
  return out +
         "</svg></div>\n<ul class=\"legend\"><li><i "
         "style=\"background:var(--limit)\"></i>chosen</li><li><i class=\"b0\"></i>Pareto front: "
         "no other layout is both faster and smaller</li><li><i class=\"b11\"></i>others that "
         "fit</li></ul>\n";
}

}  // namespace smp::page
