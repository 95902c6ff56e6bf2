#pragma once

#include <string>

#include "page/html.h"

namespace smp::page {

// From a value to a place.
struct Scale {
  double low = 0, high = 1;
  int ticks = 5;  // parts between them
  double at(double value, double from, double to) const {
    return high > low ? from + (value - low) / (high - low) * (to - from) : from;
  }
};

// The frame of a picture with two axes.
struct Plot {
  Scale across, up;

  double x(double value) const;  // in SVG units
  double y(double value) const;
  // The opened <svg> with ticks and the axes' names; "</svg></div>" ends it.
  std::string begin(const Axis& x_axis, const Axis& y_axis) const;
};

}  // namespace smp::page
