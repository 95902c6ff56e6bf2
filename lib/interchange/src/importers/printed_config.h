#pragma once

#include <string>
#include <string_view>

// Configurations that a run prints into its log. The texts keep the log's lines and columns: what
// is no part of the configuration becomes blank. Pure.
namespace smp::importers {

// The YAML that Megatron Bridge prints (ConfigContainer.print_yaml); a text without it unchanged.
std::string printed_nemo_config(std::string_view text);

// The lines between "---- arguments ----" and "---- end of arguments ----" of Megatron-LM, with or
// without a rank before each; empty if there are none.
std::string printed_megatron_arguments(std::string_view text);

}  // namespace smp::importers
