#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "smp/plan/spec/job_spec.h"

// The files that a job trains on, found and checked without reading them. The dry run and the
// runtime use the same list.
namespace smp::data {

// A training.data.path that names no path: the Python source that every machine with python3 has.
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

// Sequences of a sample. A decoder has one, whose tokens are predicted from those before them. An
// encoder_decoder has two in a row: the encoder reads the first and the decoder writes the second
// (prefix language modelling: Raffel et al. 2020, section 3.3.1).
int64_t sequences_per_sample(const ModelSpec& model);

// The target, or the label, of a sample that only fills up the last batch of an evaluation. It has
// no loss and is not counted.
inline constexpr int64_t kNoTarget = -1;

// Samples of one evaluation, of each set; 0 without evaluation. Throws ConfigError if they are not
// whole batches and evaluation.pad_last_batch is false.
int64_t evaluation_samples(const TrainingSpec& training);

// How many of these are samples at the end of the training data that are kept for evaluation. 0 if
// a split or sets name the evaluation data.
int64_t held_out_samples(const TrainingSpec& training);

// Lists the text of training.data.path. A file is itself. A folder gives its files with one of
// data.suffixes, or all if there are none; hidden files and folders, and symbolic links to folders,
// are left out. "python-stdlib" gives the .py files of the standard library of the python3 on PATH,
// without site-packages. Throws ConfigError, with the key and the path, if something is missing,
// unreadable or empty.
DataFiles find_data_files(const TrainingSpec& training,
                          const std::string& key = "training.data.path");

// The files and folders of a job's data, sources and sets, each of which must exist. A prefix gives
// its .bin or .npy and the files beside it: index, manifest, the mask of loss_mask. Patterns are
// left out: they are matched when the data are read.
std::vector<std::string> named_data(const TrainingSpec& training);

// Throws ConfigError when the model cannot take bytes as tokens (vocab_size < 256).
void check_byte_vocabulary(const ModelSpec& model);

}  // namespace smp::data
