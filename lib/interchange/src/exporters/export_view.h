#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "smp/plan/spec/plan.h"

// The parts of a plan that every writer needs, and the list of settings that its target cannot
// express. Not thread-safe per object.
namespace smp::exporters {

struct ExportView {
  explicit ExportView(const Plan& of);

  const Plan& plan;
  const ModelSpec& model;
  const TrainingSpec& training;
  const ParallelSpec& parallel;
  mesh::Degrees degrees;
  Sharding sharding = Sharding::kNone;  // none where z is 1
  PipelineKind schedule = PipelineKind::kInterleaved;
  Precision precision = Precision::kBf16;
  Recompute recompute = Recompute::kNone;
  int64_t virtual_stages = 1;
  int64_t micro_batch = 1;
  int64_t microbatches = 1;
  int64_t global_batch = 1;
  int64_t hosts = 1;
  int64_t processes_per_host = 1;
  bool offload_activations = false;
  bool offload_optimizer = false;
  bool offload_parameters = false;
  bool sequence_parallel = false;

  bool is_half() const { return precision != Precision::kFp32 && precision != Precision::kFp64; }
  bool partition_is_even() const;  // as many layers in each stage
  std::vector<int64_t> partition() const;
  // The order of the axes of more than one rank, slowest first, e.g. "DPT" or "PD".
  std::string rank_order() const;
};

// Collects settings that a target cannot express, and notes on settings that its file leaves to the
// script.
class Refusals {
 public:
  explicit Refusals(const ExportView& view) : view_(view) {}

  void refuse_if(bool wrong, std::string what, std::string nearest);
  void note(std::string text) { notes_.push_back(std::move(text)); }
  // A note if ranks that the plan puts side by side are not neighbours in the target's order
  // (slowest first), e.g. "PDT".
  void note_order(std::string_view order, std::string_view how);
  // `name` is the plan's, `target` the word of --to. Throws ConfigError.
  void raise_if_any(const std::string& name, std::string_view target) const;
  std::vector<std::string> take_notes() { return std::move(notes_); }

  // Notes on the settings that a file leaves to the script (export_notes.cpp).
  void note_optimizer();  // and its schedule
  void fp32_states();     // refuses others
  void note_schedule();
  void note_part_of_recompute();
  void note_ramp();
  // Of training.lora and training.frozen: a note, or where the target starts a training program of
  // its own, a refusal.
  void fine_tuning(bool target_trains);

  // Notes that several targets share.
  void loss_scale_doubles();
  void no_context();
  void no_exchange();  // of heads between context ranks
  void no_experts();
  void no_partitioned_activations();
  void offloads_checkpoints_alone();
  void all_tensor_kinds();
  void precision_among(std::initializer_list<Precision> known, Precision nearest);

 private:
  const ExportView& view_;
  std::vector<std::string> problems_;
  std::vector<std::string> notes_;
};

// "# a\n# b\n", for the targets that have comments.
std::string comments(const std::vector<std::string>& notes);
std::string python_name(const std::string& text);

std::string write_deepspeed(const ExportView& view, Refusals& refusals);
std::string write_megatron(const ExportView& view, Refusals& refusals);
std::string write_torchtitan(const ExportView& view, Refusals& refusals);
std::string write_accelerate(const ExportView& view, Refusals& refusals);
std::string write_sagemaker_v1(const ExportView& view, Refusals& refusals);
std::string write_sagemaker_v2(const ExportView& view, Refusals& refusals, bool sdk3);
std::string write_torchrun(const ExportView& view, Refusals& refusals);
std::string write_mpirun(const ExportView& view, Refusals& refusals);
std::string torchrun_words(const ExportView& view);  // "torchrun --nnodes 2 ..."

}  // namespace smp::exporters
