#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "smp/plan/file_identity.h"
#include "smp/plan/job_spec.h"
#include "smp/runtime/huggingface_model.h"
#include "smp/runtime/safetensors.h"
#include "smp/runtime/tensor_piece.h"

// A folder of Hugging Face weights (config.json and model.safetensors, or its shards with
// model.safetensors.index.json) as our parameters: the names of huggingface_export.h, backwards.
// Strict: the config must describe this very model, and the files hold its tensors, all of them, in
// their shapes, and no others; but prefixes that wrappers of PyTorch leave are taken off, and a
// tied head may be there again, equal. Only what is asked for is read, and such a head. No torch;
// one thread at a time.
namespace smp {

class HuggingFaceWeights {
 public:
  // Reads the config and the headers of all files. Throws ConfigError, with the file, for what does
  // not fit the model, SafetensorsError for a broken file.
  HuggingFaceWeights(std::string folder, const ModelSpec& model);
  ~HuggingFaceWeights();
  HuggingFaceWeights(const HuggingFaceWeights&) = delete;
  HuggingFaceWeights& operator=(const HuggingFaceWeights&) = delete;

  // Fills a piece of one of our parameters, whose type may be fp32, fp64, bf16 or fp16; what is
  // stored in another one of these is converted, rounded to nearest.
  void read(const TensorPiece& piece) const;

  // What they were read from, as it was when this object was made.
  std::vector<FileIdentity> files() const;
  // Throws std::runtime_error, with the file, where one has changed since.
  void check_files_unchanged() const;

 private:
  struct Stored {  // a tensor of the files
    const SafetensorsReader* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };
  struct Source {  // where one of our parameters lies
    Stored stored;
    int64_t first_row = 0;  // of the stacked tensor
    bool transposed = false;
  };

  void open_files();
  void look_at_all();
  void add_file(const std::string& name);
  void name_as_models_do(const ModelSpec& model);
  void take_copies_of_table(const std::string& table, const ModelSpec& model);
  static bool equal(const Stored& a, const Stored& b);
  std::string hint_of_missing(const std::string& name) const;
  std::string hint_of_no_weights() const;
  void check_tensors(const ModelSpec& model);

  std::string folder_;
  std::vector<KnownFile> known_;  // all of its files that are read
  std::map<std::string, std::unique_ptr<SafetensorsReader>> files_;  // by name
  std::map<std::string, Stored> stored_;        // by their name, once read by the model's
  std::map<std::string, std::string> file_of_;  // tensor to file
  std::map<std::string, Source> sources_;       // by our name
};

// The file of each tensor, as model.safetensors.index.json says it. Throws ConfigError for what is
// no index, or names files elsewhere.
std::map<std::string, std::string> parse_weight_index(const std::string& path,
                                                      const std::string& text);

// Throws ConfigError, naming the key, when a config.json does not describe this model.
void check_huggingface_config(const std::string& path, const std::string& text,
                              const ModelSpec& model);

}  // namespace smp
