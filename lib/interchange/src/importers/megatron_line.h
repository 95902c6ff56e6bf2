#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "importers/foreign_keys.h"
#include "smp/interchange/importers/imported.h"

namespace smp::importers {

// Converts the flags of a Megatron-LM command line that are not copied unchanged. The model is in
// import_megatron_model.cpp, the training in import_megatron_training.cpp, the data in
// import_megatron_data.cpp, the rest in import_megatron.cpp.
class MegatronLine {
 public:
  // `reads_model` is false where the model comes from elsewhere: a warning then lists the flags of
  // its sizes.
  // `framework` is the shipped framework whose habits price the job.
  MegatronLine(ForeignReader& reader, const ImportContext& context, bool reads_model = true,
               const char* framework = "megatron-core")
      : reader_(reader), known_(context), reads_model_(reads_model), framework_(framework) {}
  void read();

 private:
  bool has(std::string_view flag) const { return reader_.has(flag); }
  std::optional<int64_t> whole(std::string_view flag) const { return reader_.whole(flag); }
  void set(std::string_view flag, std::string_view path, std::string value);
  void set(std::string_view flag, std::string_view path, int64_t value);
  void set(std::string_view flag, std::string_view path, bool value);

  void cluster();
  void model();
  void leave_model();
  void vocabulary();
  bool vocabulary_of_tokenizer();  // whether it is known
  void leave_tokenizer();
  void positions();
  void rotary_share(bool rotary);
  void rotary_scaling();
  void window();
  void full_layers();
  void activation();
  void gate();
  void sizes(bool swiglu);
  void experts();
  void router();
  void router_losses();
  void further_tokens();
  static bool dense_then_sparse(std::string text, int64_t& dense, int64_t& sparse);
  void latent_attention();
  void latent_rope();
  void hybrid();
  void hybrid_partition();
  void degrees();
  void context_exchange();
  void schedule();
  void uneven(std::optional<int64_t> layers);
  void sharding();
  void precision();
  void recompute();
  void optimizer();
  void optimizer_types();
  std::optional<int64_t> steps_of(std::string_view flag);
  std::optional<int64_t> ramped_steps(int64_t samples, int64_t batch) const;
  void learning_rate();
  void warm_up(std::optional<int64_t> steps);
  void loss_scale();
  void data();
  bool sources(std::string_view flag);
  bool split();
  void packing();
  void rest();

  ForeignReader& reader_;
  ImportContext known_;
  bool reads_model_ = true;
  const char* const framework_;
  int64_t tensor_ = 1;
  int64_t pipeline_ = 1;
  std::vector<int64_t> hybrid_chunks_;  // layers between the bars of a pattern
  int64_t context_ = 1;
};

}  // namespace smp::importers
