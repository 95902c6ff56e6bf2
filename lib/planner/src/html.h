#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// Pieces of the HTML report: a page without scripts and without network, that reads in light and in
// dark, on a wide screen and on a narrow one. Every figure that a picture shows is also an
// attribute (data-bytes, data-ns) or a cell of a table, as the integer that the JSON report has.
// Pure.
namespace smp::html {

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
  int kind = 0;      // 0 forward, 1 backward, 2 weight gradient
  int64_t chunk = 0;
};
std::string timeline(const std::vector<Box>& boxes, int64_t rows, int64_t span_ns);

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
};
std::string scatter(const std::vector<Point>& points, const Axis& x, const Axis& y);

// Cells are text; numbers are recognised by their first character and set to the right.
std::string table(const std::vector<std::string>& head,
                  const std::vector<std::vector<std::string>>& rows);

struct Section {
  std::string title;
  std::string body;  // HTML
};
std::string page(const std::string& title, const std::string& summary,
                 const std::vector<Section>& sections);

}  // namespace smp::html
