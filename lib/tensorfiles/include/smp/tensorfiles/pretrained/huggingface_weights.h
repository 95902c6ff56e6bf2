#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "smp/interchange/huggingface/huggingface_model.h"
#include "smp/plan/files/file_identity.h"
#include "smp/plan/spec/job_spec.h"
#include "smp/tensorfiles/safetensors/safetensors.h"
#include "smp/tensorfiles/safetensors/tensor_piece.h"

// A folder of Hugging Face weights as our parameters: config.json and model.safetensors, or its
// shards with model.safetensors.index.json. The names are those of huggingface_model.h. The reader
// is strict: the config must describe this model, and the files must hold exactly its tensors, in
// their shapes. Two differences are accepted: prefixes that wrappers of PyTorch leave are taken
// off, and a tied head may be stored again if it is equal. Only the pieces that are asked for are
// read, and such a head. No torch; one thread at a time.
namespace smp::pretrained {

class HuggingFaceWeights {
 public:
  // Reads the config and the headers of all files. Throws ConfigError, with the file, if it does
  // not fit the model; SafetensorsError for a broken file.
  HuggingFaceWeights(std::string folder, const ModelSpec& model);
  ~HuggingFaceWeights();
  HuggingFaceWeights(const HuggingFaceWeights&) = delete;
  HuggingFaceWeights& operator=(const HuggingFaceWeights&) = delete;

  // Fills a piece of one of our parameters in fp32, fp64, bf16 or fp16. Weights stored in another
  // one of these types are converted, rounded to nearest.
  void read(const safetensors::TensorPiece& piece) const;

  // The files, as they were when this object was made.
  std::vector<files::FileIdentity> files() const;
  // Throws std::runtime_error, with the file, if one has changed since.
  void check_files_unchanged() const;

 private:
  struct Stored {  // a tensor of the files
    const safetensors::SafetensorsReader* file = nullptr;
    const safetensors::SafetensorsEntry* entry = nullptr;
  };
  struct Source {  // where rows [begin, end) of one of our parameters lie
    Stored stored;
    int64_t begin = 0, end = 0;
    int64_t at = 0;        // the first element
    int64_t row_step = 0;  // elements between rows
    int64_t col_step = 1;  // and columns
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
  void read_box(const Source& source, const model::Box& box, DType dtype, std::byte* out) const;

  std::string folder_;
  std::vector<files::KnownFile> known_;  // all of its files that are read
  std::map<std::string, std::unique_ptr<safetensors::SafetensorsReader>> files_;  // by name
  std::map<std::string, Stored> stored_;                // by their name, once read by the model's
  std::map<std::string, std::string> file_of_;          // tensor to file
  std::map<std::string, std::vector<Source>> sources_;  // by our name
};

// The file of each tensor, from model.safetensors.index.json. Throws ConfigError if the text is no
// index, or names files elsewhere.
std::map<std::string, std::string> parse_weight_index(const std::string& path,
                                                      const std::string& text);

}  // namespace smp::pretrained
