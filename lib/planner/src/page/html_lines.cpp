#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "page/html.h"
#include "page/html_axes.h"

namespace smp::page {
namespace {

constexpr size_t kMostPoints = 600;  // of a line: more than a screen tells apart

// 1, 2 or 5 times a power of ten, or of bytes a power of two from 1 on, not below `step`.
double round_step(double step, bool is_bytes) {
  if (is_bytes) return std::max(1.0, std::exp2(std::ceil(std::log2(step) - 1e-9)));
  const double power = std::pow(10, std::floor(std::log10(step)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= step * (1 - 1e-9)) return times * power;
  }
  return 10 * power;
}

// Four to nine steps of a round size that hold all values.
Scale scale_of(double low, double high, bool is_bytes) {
  if (!(high > low)) high = low + (low == 0 ? 1 : std::abs(low) * 0.1);
  const double step = round_step((high - low) / 7, is_bytes);
  const double from = std::floor(low / step + 1e-9) * step;
  const double steps = std::ceil((high - from) / step - 1e-9);
  return {from, from + steps * step, static_cast<int>(steps)};
}

struct Bounds {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();
  void add(double value) {
    if (!std::isfinite(value)) return;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
};

// The points that are drawn: all, or the lowest and highest of each part, in their order.
std::vector<size_t> drawn(const Line& line) {
  std::vector<size_t> places;
  const size_t count = line.y.size();
  if (count <= kMostPoints) {
    for (size_t i = 0; i < count; ++i) places.push_back(i);
    return places;
  }
  constexpr size_t kParts = kMostPoints / 2;
  for (size_t part = 0; part < kParts; ++part) {
    const auto begin = line.y.begin() + static_cast<std::ptrdiff_t>(count * part / kParts);
    const auto end = line.y.begin() + static_cast<std::ptrdiff_t>(count * (part + 1) / kParts);
    const auto less = [](double a, double b) {
      return !std::isfinite(b) ? std::isfinite(a) : a < b;
    };
    const auto [low, high] = std::minmax_element(begin, end, less);
    const auto first = static_cast<size_t>(std::min(low, high) - line.y.begin());
    const auto second = static_cast<size_t>(std::max(low, high) - line.y.begin());
    places.push_back(first);
    if (second != first) places.push_back(second);
  }
  return places;
}

std::string polylines(const Line& line, const Plot& plot) {
  std::string out, points;
  size_t count = 0;
  size_t last = 0;
  const auto end = [&] {
    if (count == 1)
      out += fmt::format("<circle class=\"k{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"/>\n",
                         line.colour, plot.x(line.x[last]), plot.y(line.y[last]));
    if (count > 1)
      out += fmt::format(
          "<polyline class=\"s{}\" data-name=\"{}\" points=\"{}\"><title>{}</title>"
          "</polyline>\n",
          line.colour, escape(line.name), points, escape(line.name));
    points.clear();
    count = 0;
  };
  for (const size_t i : drawn(line)) {
    if (!std::isfinite(line.y[i])) {
      end();
      continue;
    }
    points += fmt::format("{:.1f},{:.1f} ", plot.x(line.x[i]), plot.y(line.y[i]));
    last = i;
    ++count;
  }
  end();
  return out;
}

std::vector<std::string> row_of(const Line& line, const Axis& axis) {
  std::vector<double> values;
  for (const double value : line.y) {
    if (std::isfinite(value)) values.push_back(value);
  }
  std::vector<std::string> row = {line.name, fmt::format("{}", line.y.size())};
  if (values.empty()) {
    row.insert(row.end(), 5, "-");
    return row;
  }
  const double first = values.front(), last = values.back();
  std::sort(values.begin(), values.end());
  for (const double value : {first, last, values.front(), values[values.size() / 2], values.back()})
    row.push_back(axis.text(value));
  return row;
}

}  // namespace

std::string line_chart(const std::vector<Line>& lines, const std::vector<Level>& levels,
                       const Axis& x, const Axis& y, bool from_zero) {
  Bounds across, up;
  for (const Line& line : lines) {
    for (const double value : line.x) across.add(value);
    for (const double value : line.y) up.add(value);
  }
  for (const Level& level : levels) up.add(level.y);
  if (from_zero) up.add(0);
  if (across.empty() || up.empty()) return "<p>nothing was measured</p>\n";
  const Plot plot{scale_of(across.low, across.high, x.is_bytes),
                  scale_of(up.low, up.high, y.is_bytes)};

  std::string out = plot.begin(x, y);
  for (const Level& level : levels)
    out += fmt::format(
        "<line class=\"level\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
        plot.x(plot.across.low), plot.x(plot.across.high), plot.y(level.y), plot.y(level.y));
  for (const Line& line : lines) out += polylines(line, plot);
  out += "</svg></div>\n<ul class=\"legend\">";
  for (const Line& line : lines)
    out += fmt::format("<li><i class=\"b{}\"></i>{}</li>", line.colour, escape(line.name));
  for (const Level& level : levels)
    out += fmt::format("<li><i style=\"background:var(--limit)\"></i>{}: {}</li>",
                       escape(level.name), escape(y.text(level.y)));
  std::vector<std::vector<std::string>> rows;
  for (const Line& line : lines) rows.push_back(row_of(line, y));
  return out + "</ul>\n<details><summary>the same as a table</summary>\n" +
         table({"", "values", "first", "last", "lowest", "median", "highest"}, rows) +
         "</details>\n";
}

}  // namespace smp::page
