#include "smp/plan/spec/job_names.h"

#include "spec/choices.h"

namespace smp {

std::string_view name_of(ModelFamily family) { return choice_name(family); }
std::string_view name_of(DeviceKind device) { return choice_name(device); }
std::string_view name_of(Precision precision) { return choice_name(precision); }
std::string_view name_of(Sharding sharding) { return choice_name(sharding); }
std::string_view name_of(Stack stack) { return choice_name(stack); }
std::string_view name_of(MlpKind mlp) { return choice_name(mlp); }
std::string_view name_of(GeluKind gelu) { return choice_name(gelu); }
std::string_view name_of(QkNormOver over) { return choice_name(over); }
std::string_view name_of(RopeScaling scaling) { return choice_name(scaling); }
std::string_view name_of(RouterKind router) { return choice_name(router); }
std::string_view name_of(BalanceOver over) { return choice_name(over); }
std::string_view name_of(NormKind norm) { return choice_name(norm); }
std::string_view name_of(NormPlacement placement) { return choice_name(placement); }
std::string_view name_of(PositionKind positions) { return choice_name(positions); }
std::string_view name_of(Recompute recompute) { return choice_name(recompute); }
std::string_view name_of(AttentionKind attention) { return choice_name(attention); }
std::string_view name_of(OptimizerKind kind) { return choice_name(kind); }
std::string_view name_of(LearningRateSchedule schedule) { return choice_name(schedule); }
std::string_view name_of(Fp8Recipe recipe) { return choice_name(recipe); }
std::string_view name_of(MasterKind master) { return choice_name(master); }
std::string_view name_of(MomentKind moment) { return choice_name(moment); }
std::string_view name_of(QuantizedKind quantized) { return choice_name(quantized); }
std::string_view name_of(CollectivesKind collectives) { return choice_name(collectives); }
std::string_view name_of(PipelineKind pipeline) { return choice_name(pipeline); }

}  // namespace smp
