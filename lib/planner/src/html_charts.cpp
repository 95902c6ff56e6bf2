#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "html.h"

namespace smp::html {
namespace {

constexpr double kWidth = 760, kHeight = 320;                       // of a scatter, in SVG units
constexpr double kLeft = 90, kRight = 20, kTop = 14, kBottom = 44;  // its margins
constexpr int kTicks = 5;

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

struct Scale {
  double low = 0, high = 1;
  double at(double value, double from, double to) const {
    return high > low ? from + (value - low) / (high - low) * (to - from) : from;
  }
};

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

std::string timeline(const std::vector<Box>& boxes, int64_t rows, int64_t span_ns) {
  std::vector<std::string> lines(static_cast<size_t>(rows));
  const double span = static_cast<double>(std::max<int64_t>(span_ns, 1));
  for (const Box& box : boxes) {
    lines[static_cast<size_t>(box.row)] += fmt::format(
        "<rect class=\"k{}{}\" x=\"{:.3f}\" width=\"{:.3f}\" height=\"20\" data-begin-ns=\"{}\" "
        "data-end-ns=\"{}\"><title>{}</title></rect>",
        box.kind, box.chunk % 2 == 1 ? " dim" : "",
        1000.0 * static_cast<double>(box.begin_ns) / span,
        std::max(0.2, 1000.0 * static_cast<double>(box.end_ns - box.begin_ns) / span - 0.4),
        box.begin_ns, box.end_ns, escape(box.name));
  }
  std::string out = "<div class=\"timeline\">\n";
  for (size_t row = 0; row < lines.size(); ++row) {
    out += fmt::format(
        "<span>stage {}</span><svg viewBox=\"0 0 1000 20\" preserveAspectRatio=\"none\" "
        "role=\"img\" "
        "aria-label=\"stage {}\">{}</svg>\n",
        row, row, lines[row]);
  }
  return out +
         "</div>\n<ul class=\"legend\"><li><i class=\"b0\"></i>forward</li><li><i class=\"b1\"></i>"
         "backward</li><li><i class=\"b2\"></i>weight gradients apart</li><li>paler: odd chunks; "
         "empty: "
         "waiting</li></ul>\n";
}

std::string scatter(const std::vector<Point>& points, const Axis& x, const Axis& y) {
  const Scale across = scale_of(points, &Point::x);
  const Scale up = scale_of(points, &Point::y);
  const auto px = [&](double value) { return across.at(value, kLeft, kWidth - kRight); };
  const auto py = [&](double value) { return up.at(value, kHeight - kBottom, kTop); };
  std::string out = fmt::format(
      "<div class=\"wide\"><svg viewBox=\"0 0 {} {}\" style=\"min-width:30rem;width:100%\" "
      "role=\"img\" "
      "aria-label=\"{} against {}\">\n",
      kWidth, kHeight, escape(y.name), escape(x.name));
  for (int tick = 0; tick <= kTicks; ++tick) {
    const double vx = across.high * tick / kTicks, vy = up.high * tick / kTicks;
    out += fmt::format(
        "<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
        px(vx), kTop, kHeight - kBottom, kHeight - kBottom + 16, escape(x.text(vx)));
    out += fmt::format(
        "<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, kWidth - kRight, py(vy), kLeft - 6, py(vy) + 4, escape(y.text(vy)));
  }
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, escape(x.name));
  out += fmt::format(
      "<text x=\"14\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 14 "
      "{0:.1f})\">{1}</text>\n",
      (kTop + kHeight - kBottom) / 2, escape(y.name));

  std::vector<const Point*> front;
  for (const Point& point : points) {
    if (point.front) front.push_back(&point);
  }
  std::sort(front.begin(), front.end(), [](const Point* a, const Point* b) { return a->x < b->x; });
  if (front.size() > 1) {
    std::string line;
    for (const Point* point : front)
      line += fmt::format("{:.1f},{:.1f} ", px(point->x), py(point->y));
    out += fmt::format("<polyline class=\"frontline\" points=\"{}\"/>\n", line);
  }
  for (const Point& point : points) {
    out += fmt::format(
        "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>\n",
        point.chosen  ? "chosen"
        : point.front ? "front"
                      : "point",
        px(point.x), py(point.y), point.chosen ? 6 : 4, escape(point.name));
  }
  return out +
         "</svg></div>\n<ul class=\"legend\"><li><i "
         "style=\"background:var(--limit)\"></i>chosen</li>"
         "<li><i class=\"b0\"></i>nothing is both faster and smaller</li><li><i "
         "class=\"b11\"></i>others "
         "that fit</li></ul>\n";
}

}  // namespace smp::html
