#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/job_spec.h"

// The files that a job trains on, found and checked without reading them: the dry run and the
// runtime use the same list.
namespace smp {

// A training.data.path that is no path: the Python source that every machine with python3 has.
inline constexpr const char* kPythonStdlib = "python-stdlib";

struct DataFile {
  std::string path;
  int64_t bytes = 0;
};

struct DataFiles {
  std::string path;             // training.data.path, resolved
  std::vector<DataFile> files;  // sorted by path below it; empty files are left out
  int64_t total_bytes = 0;      // of the text: all files and one 0 byte between two
};

// Sequences of a sample: one, whose tokens are predicted from those before them; of an
// encoder_decoder two that follow each other, of which the encoder reads the first and the decoder
// writes the second (prefix language modelling: Raffel et al. 2020, section 3.3.1).
int64_t sequences_per_sample(const ModelSpec& model);

// The target, or the label, of a sample that only fills up the last batch of an evaluation: it has
// no loss and counts nowhere.
inline constexpr int64_t kNoTarget = -1;

// Samples of one evaluation, of each set; 0 without evaluation. Throws ConfigError when they are
// not whole batches and the last is not to be padded.
int64_t evaluation_samples(const TrainingSpec& training);

// Of these, samples at the end of what is trained on that are kept for evaluation: none where a
// split or sets say what is evaluated on.
int64_t held_out_samples(const TrainingSpec& training);

// Lists the text of training.data.path: a file; a folder (its files with one of data.suffixes, all
// when there are none; hidden files and folders, and symbolic links to folders, are left out); or
// "python-stdlib", the .py files of the standard library of the python3 on PATH, without
// site-packages. Throws ConfigError, with the key and the path, for what is missing, unreadable or
// empty.
DataFiles find_data_files(const TrainingSpec& training,
                          const std::string& key = "training.data.path");

// The files and folders that a job's data, sources and sets are, each of which must be there: of a
// prefix its .bin or .npy, and what lies beside it: index, manifest, the mask of loss_mask.
// Patterns are left out: what fits them is looked for when they are read.
std::vector<std::string> named_data(const TrainingSpec& training);

// Throws ConfigError when the model cannot take bytes as tokens (vocab_size < 256).
void check_byte_vocabulary(const ModelSpec& model);

}  // namespace smp
