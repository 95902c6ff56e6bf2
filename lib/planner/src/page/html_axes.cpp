#include "page/html_axes.h"

#include <fmt/format.h>

namespace smp::page {
namespace {

constexpr double kWidth = 760, kHeight = 320;                       // in SVG units
constexpr double kLeft = 90, kRight = 34, kTop = 14, kBottom = 44;  // margins

}  // namespace

double Plot::x(double value) const { return across.at(value, kLeft, kWidth - kRight); }
double Plot::y(double value) const { return up.at(value, kHeight - kBottom, kTop); }

std::string Plot::begin(const Axis& x_axis, const Axis& y_axis) const {
  std::string out = fmt::format(
      "<div class=\"wide\"><svg viewBox=\"0 0 {} {}\" style=\"min-width:30rem;width:100%\" "
      "role=\"img\" "
      "aria-label=\"{} against {}\">\n",
      kWidth, kHeight, escape(y_axis.name), escape(x_axis.name));
  for (int tick = 0; tick <= across.ticks; ++tick) {
    const double vx = across.low + (across.high - across.low) * tick / across.ticks;
    out += fmt::format(
        "<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{0:.1f}\" y=\"{3:.1f}\" text-anchor=\"middle\">{4}</text>\n",
        x(vx), kTop, kHeight - kBottom, kHeight - kBottom + 16, escape(x_axis.text(vx)));
  }
  for (int tick = 0; tick <= up.ticks; ++tick) {
    const double vy = up.low + (up.high - up.low) * tick / up.ticks;
    out += fmt::format(
        "<line class=\"tick\" x1=\"{0:.1f}\" x2=\"{1:.1f}\" y1=\"{2:.1f}\" y2=\"{2:.1f}\"/>"
        "<text x=\"{3:.1f}\" y=\"{4:.1f}\" text-anchor=\"end\">{5}</text>\n",
        kLeft, kWidth - kRight, y(vy), kLeft - 6, y(vy) + 4, escape(y_axis.text(vy)));
  }
  out += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                     (kLeft + kWidth - kRight) / 2, kHeight - 8, escape(x_axis.name));
  return out + fmt::format(
                   "<text x=\"14\" y=\"{0:.1f}\" text-anchor=\"middle\" transform=\"rotate(-90 14 "
                   "{0:.1f})\">{1}</text>\n",
                   (kTop + kHeight - kBottom) / 2, escape(y_axis.name));
}

}  // namespace smp::page
