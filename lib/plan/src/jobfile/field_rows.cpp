#include "jobfile/field_rows.h"

namespace smp::jobfile {

const std::vector<Section>& job_sections() {
  static const std::vector<Section> kSections = {
      {"", "the job itself"},
      {kModel, "the model's sizes (required)"},
      {kInput, "the images that a list of layers reads"},
      {kCluster, "the hosts; rates are per rank, links per direction"},
      {kTraining, "batch, precision, length"},
      {kOptimizer, "how gradients change the weights, and how fast"},
      {kLossScale, "what fp16 multiplies the loss with: SMP's parameters"},
      {kData, "the text or images to train on"},
      {kImageFile, "the numbers of each line of the file of images; resized to model.input"},
      {kCheckpoint, "when the run saves its state"},
      {kEvaluation, "the loss of samples that are never trained on: the last of it is held out"},
      {kTrace, "which steps leave a timeline of every action, collective and wait"},
      {kParallel, "the layout; each key is auto (the planner chooses) or pinned"},
      {kTensorParallel,
       "whose matrices the tensor ranks share; those of the other kinds are whole on each of them"},
      {kCollectives,
       "what moves a GPU's memory in the groups along an axis: as data_collectives, for that axis "
       "alone; auto = what data_collectives says, or what the plan's prices say"},
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
    add_parallel_fields(out);
    return out;
  }();
  return kFields;
}

}  // namespace smp::jobfile
