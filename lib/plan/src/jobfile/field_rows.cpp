#include "jobfile/field_rows.h"

namespace smp::jobfile {

const std::vector<Section>& job_sections() {
  static const std::vector<Section> kSections = {
      {"", "the job itself"},
      {kModel, "the model's sizes (required)"},
      {kInput, "the images that a list of layers reads"},
      {kCluster, "the hosts; rates are per rank, links per direction"},
      {kTraining, "batch, precision, length"},
      {kFusions,
       "operations of a layer that are one kernel; false = a kernel for each; results differ by "
       "rounding alone (docs/programs.md)"},
      {kOptimizer, "the optimizer and its learning rate"},
      {kLossScale, "the loss scale of fp16, with SMP's parameters"},
      {kLora,
       "low-rank adapters beside frozen weights (docs/fine-tuning.md); smp-plan prices them as "
       "other "
       "frameworks run them"},
      {kData, "the text or images to train on"},
      {kImageFile,
       "the numbers of each line of the file of images; images are resized to model.input"},
      {kCheckpoint, "when the run saves its state"},
      {kEvaluation,
       "the loss of samples that are not trained on: the last samples of the training data, or "
       "sets of their own"},
      {kTrace, "steps that are recorded as a timeline of every action, collective and wait"},
      {kParallel, "the layout; each key is auto (the planner chooses) or pinned"},
      {kTensorParallel,
       "kinds of matrices that the tensor ranks share; each tensor rank has the other kinds whole"},
      {kCollectives,
       "transport of GPU tensors in the groups along one axis, nccl or host, as data_collectives; "
       "auto = data_collectives where it is set, else the faster transport by the predicted step "
       "time"},
  };
  return kSections;
}

const std::vector<Field>& job_fields() {
  static const std::vector<Field> kFields = [] {
    std::vector<Field> out = {{"",
                               "name",
                               SMP_AT(name),
                               "name of the job and of its run folder",
                               {.computed = "the first file's name", .is_file_name = true}}};
    add_model_fields(out);
    add_cluster_fields(out);
    add_training_fields(out);
    add_optimizer_fields(out);
    add_fine_tuning_fields(out);
    add_parallel_fields(out);
    return out;
  }();
  return kFields;
}

}  // namespace smp::jobfile
