#pragma once

#include <span>
#include <string_view>

// The model files of configs/models, which are compiled into the program, for smp-plan init --model
// NAME. Pure; any thread.
namespace smp::jobfile {

struct NamedModel {
  std::string_view name;
  std::string_view text;  // the file, as it lies in configs/models
};

// Sorted by name.
std::span<const NamedModel> named_models();

}  // namespace smp::jobfile
