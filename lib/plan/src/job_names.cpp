#include "smp/plan/job_names.h"

#include "choices.h"

namespace smp {

std::string_view name_of(ModelFamily family) { return choice_name(family); }
std::string_view name_of(DeviceKind device) { return choice_name(device); }
std::string_view name_of(Precision precision) { return choice_name(precision); }
std::string_view name_of(Sharding sharding) { return choice_name(sharding); }
std::string_view name_of(PipelineKind pipeline) { return choice_name(pipeline); }

}  // namespace smp
