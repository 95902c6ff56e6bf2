#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Pieces of the HTML report: a page without scripts and without network, that reads in light and in
// dark, on a wide screen and on a narrow one. Every figure that a picture shows is also an
// attribute (data-bytes, data-ns) or a cell of a table, as the integer that the JSON report has.
// Pure.
namespace smp::page {

std::string escape(std::string_view text);

// One part of a stacked bar.
struct Segment {
  std::string name;
  int64_t value = 0;    // bytes or ns, as in the JSON
  std::string text;     // for people: "12.5 MiB"
  std::string comment;  // shown on hovering: formula, source
  int colour = 0;       // of kColours
};
struct Bar {
  std::string name;  // "stage 0, tensor 0-3"
  std::string text;  // the sum, for people
  std::vector<Segment> segments;
};
inline constexpr int kColours = 12;

// Bars on one scale, with a legend and the same as a table. `limit`: a line across; 0 = none.
// `unit` is "bytes" or "ns": the name of the attribute that carries a segment's value.
std::string stacked_bars(const std::vector<Bar>& bars, std::string_view unit, int64_t limit,
                         const std::string& limit_text);

// One box of a pipeline timeline.
struct Box {
  int64_t row = 0;  // stage
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
  std::string name;  // "forward 3", on hovering
  int colour = 0;    // of kColours
  int64_t chunk = 0;
};
// What a colour means.
struct Meaning {
  int colour = 0;
  std::string name;
};
// `rows`: their names. `note` stands behind the legend.
std::string timeline(const std::vector<Box>& boxes, const std::vector<std::string>& rows,
                     int64_t span_ns, std::string (*time_text)(double seconds),
                     const std::vector<Meaning>& legend, const std::string& note);

struct Point {
  double x = 0;
  double y = 0;
  std::string name;    // on hovering, and in the table
  bool front = false;  // on the Pareto front
  bool chosen = false;
};
struct Axis {
  std::string name;
  std::string (*text)(double) = nullptr;  // a tick's label
  bool is_bytes = false;                  // round numbers are powers of two
};
// A measured quantity over steps or time. A value that is not finite leaves a gap.
struct Line {
  std::string name;
  int colour = 0;
  std::vector<double> x, y;
};
struct Level {
  std::string name;  // "predicted"
  double y = 0;
};
// Lines on one pair of axes, dashed levels across, a legend, and each line's first, last, lowest,
// median and highest value as a table. A line of many points is drawn by the lowest and highest of
// each part. The y axis begins at 0 where `from_zero`.
std::string line_chart(const std::vector<Line>& lines, const std::vector<Level>& levels,
                       const Axis& x, const Axis& y, bool from_zero);

std::string scatter(const std::vector<Point>& points, const Axis& x, const Axis& y);

// Cells are text; numbers are recognised by their first character and set to the right.
std::string table(const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows);

struct Section {
  std::string title;
  std::string body;  // HTML
};
// `origin` is the last line: where the figures are from.
std::string page(const std::string& title, const std::string& summary,
                 const std::vector<Section>& sections, const std::string& origin);

}  // namespace smp::page
