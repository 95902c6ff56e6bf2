#include "importers/adapters.h"

#include <fmt/format.h>

namespace smp::importers {

void warn_adapter(std::string_view kind, text::Place place, Imported& out) {
  out.warnings.push_back(
      fmt::format("{}:{}:{}: {} is priced as full fine-tuning: the plan's gradients and optimizer "
                  "state are those of all weights; training.lora in the job file prices adapters",
                  out.file, place.line, place.column, kind));
}

}  // namespace smp::importers
