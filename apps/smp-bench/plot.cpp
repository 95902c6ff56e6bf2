#include "plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tables.h"

namespace smp {
namespace {

constexpr int kWidth = 640, kHeight = 360;
constexpr int kLeft = 56, kTop = 24, kBottom = 44, kRight = 12;
constexpr int kLegendWidth = 200, kLegendLine = 16;
const char* const kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b"};

struct Line {
  std::string name;
  std::vector<std::pair<double, double>> points;  // log2 of bytes, GB/s
};

std::vector<Line> lines_of(const std::vector<BenchResult>& results, int ranks) {
  std::vector<Line> lines;
  for (const BenchResult& result : results) {
    const BenchCase& measured = result.measured;
    const std::string name = fmt::format("{} {}", call_name(measured.op), name_of(measured.dtype));
    if (lines.empty() || lines.back().name != name) lines.push_back({name, {}});
    const auto& time = result.out_of_place ? result.out_of_place : result.in_place;
    const int64_t bytes = result.count * bytes_of(measured.dtype);
    if (!time || bytes == 0) continue;
    lines.back().points.emplace_back(
        std::log2(static_cast<double>(bytes)),
        algorithm_bytes_per_s(result, time->seconds) / kGiga * bus_factor(measured.op, ranks));
  }
  return lines;
}

// 1, 2 or 5 times a power of ten: a step of about a fifth of the highest value.
double step_for(double highest) {
  const double power = std::pow(10, std::floor(std::log10(highest / 5)));
  for (const double step : {1.0, 2.0, 5.0})
    if (step * power * 5 >= highest) return step * power;
  return 10 * power;
}

std::string size_text(double log_bytes) {
  const auto bytes = static_cast<int64_t>(std::exp2(log_bytes));
  if (bytes >= 1 << 30) return fmt::format("{}Gi", bytes >> 30);
  if (bytes >= 1 << 20) return fmt::format("{}Mi", bytes >> 20);
  if (bytes >= 1 << 10) return fmt::format("{}Ki", bytes >> 10);
  return std::to_string(bytes);
}

}  // namespace

std::string as_plot(const std::vector<BenchResult>& results, int ranks) {
  const std::vector<Line> lines = lines_of(results, ranks);
  double from = 1e9, to = 0, highest = 1e-3;
  for (const Line& line : lines)
    for (const auto& [x, y] : line.points) {
      from = std::min(from, std::floor(x));
      to = std::max(to, std::ceil(x));
      highest = std::max(highest, y);
    }
  to = std::max(to, from + 1);
  const double step = step_for(highest), top = step * std::ceil(highest / step);
  const auto x_of = [&](double x) {
    return kLeft + (kWidth - kLeft - kRight) * (x - from) / (to - from);
  };
  const auto y_of = [&](double y) { return kTop + (kHeight - kTop - kBottom) * (1 - y / top); };
  const int per_row = (kWidth - kLeft) / kLegendWidth;
  const int height = kHeight + kLegendLine * (static_cast<int>(lines.size()) / per_row + 1);
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" "
      "font-family=\"sans-serif\" font-size=\"11\">\n"
      "<style>text{{fill:#444}}@media(prefers-color-scheme:dark){{text{{fill:#ccc}}}}</style>\n"
      "<text x=\"{2}\" y=\"14\" font-weight=\"bold\">busbw, GB/s, {3} ranks</text>\n",
      kWidth, height, kLeft, ranks);
  for (double y = 0; y <= top * 1.001; y += step)
    out += fmt::format(
        "<path d=\"M{0} {1:.1f}H{2}\" stroke=\"#8884\"/><text x=\"{3}\" y=\"{4:.1f}\" "
        "text-anchor=\"end\">{5:g}</text>\n",
        kLeft, y_of(y), kWidth - kRight, kLeft - 6, y_of(y) + 4, y);
  for (double x = from; x <= to; x += std::max(1.0, std::round((to - from) / 8)))
    out += fmt::format("<text x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x_of(x),
                       kHeight - kBottom + 16, size_text(x));
  for (size_t i = 0; i < lines.size(); ++i) {
    const char* const colour = kColours[i % std::size(kColours)];
    std::string path;
    for (const auto& [x, y] : lines[i].points)
      path += fmt::format("{:.1f},{:.1f} ", x_of(x), y_of(y));
    out += fmt::format("<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"/>\n",
                       path, colour);
    const int x = kLeft + static_cast<int>(i) % per_row * kLegendWidth;
    const int y = kHeight + static_cast<int>(i) / per_row * kLegendLine;
    out += fmt::format(
        "<path d=\"M{} {}h20\" stroke=\"{}\" stroke-width=\"2\"/>"
        "<text x=\"{}\" y=\"{}\">{}</text>\n",
        x, y, colour, x + 26, y + 4, lines[i].name);
  }
  return out + "</svg>\n";
}

}  // namespace smp
