#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "smp/plan/data/mixture.h"
#include "smp/plan/data/open_files.h"
#include "smp/plan/data/packing.h"
#include "smp/plan/data/token_samples.h"
#include "smp/plan/data/token_stream.h"
#include "smp/plan/files/file_identity.h"
#include "smp/plan/spec/job_spec.h"

namespace smp::data {

// The place of sample i of a step, a function of the seed alone. Sample n = step x global_batch + i
// of the run is the m-th sample of one source (Mixture). The m-th sample of a source lies in epoch
// m / N, where the epoch's Permutation gives its place. So every layout, any number of shards, and
// a run that resumes from a checkpoint see the same samples.
struct SamplePlace {
  size_t source = 0;
  int64_t epoch = 0;
  int64_t sample = 0;  // of the source's N, in the order of the corpus
  bool operator==(const SamplePlace&) const = default;
};

// The text or tokens that a job trains on and is evaluated on; docs/data.md. Memory does not grow
// with the corpus. Immutable; safe from any thread.
class TokenData {
 public:
  // Opens and checks all files. Throws ConfigError, with the key and the path, if a file is
  // missing, torn, inconsistent, unfit for the job or too small for it; std::runtime_error for a
  // file that is being written.
  explicit TokenData(const JobSpec& job);
  TokenData(const TokenData&) = delete;
  TokenData& operator=(const TokenData&) = delete;

  // Samples [first, first + count) of a step's global batch. Throws std::runtime_error or
  // std::system_error, with the path, if a file cannot be read or has changed, or a token is
  // outside the model's vocabulary.
  void read(int64_t step, int64_t first, int64_t count, const TokenBuffers& out) const;

  // The same for one evaluation of a set of evaluation_sets(). Samples behind the last one fill a
  // batch: they repeat it, with kNoTarget.
  void read_held_out(size_t set, int64_t first, int64_t count, const TokenBuffers& out) const;

  // Names of the evaluation sets. "" alone is a part of the training data. Empty: there is no
  // evaluation.
  std::vector<std::string> evaluation_sets() const;

  SamplePlace place(int64_t step, int64_t sample) const;
  // The pieces that a sample consists of, each with the place of its first token in words.
  struct Piece {
    DocumentPiece piece;
    std::string place;
  };
  std::vector<Piece> pieces(const SamplePlace& place) const;
  std::string source_name(size_t source) const;
  // What smp-data prints about the training files.
  std::vector<TokenManifest> manifests() const;

  // How often each source was seen whole in the first `samples` samples of the run, by its weight,
  // to less than one sample. In the order of the job.
  std::vector<double> epochs(int64_t samples) const;

  int64_t trained_tokens() const;  // of all sources, without what is held out
  // The files of the training data and of the job's sets, as they were when they were opened.
  std::vector<files::FileIdentity> files() const { return files_.identities(); }
  std::vector<files::FileIdentity> evaluation_files() const { return set_files_.identities(); }
  // "12.3 MiB of text in 3 files under book; each byte is a token, of 256", a line for each source.
  std::string description() const;

 private:
  struct Source {
    std::string name, key;
    std::unique_ptr<const TokenStream> stream;
    int64_t weight = 1;
    int64_t held_out = 0;  // samples of one evaluation
    std::unique_ptr<const TokenSamples> trained, evaluated;
  };
  struct Set {
    std::string name;
    std::unique_ptr<const TokenStream> stream;
    std::unique_ptr<const TokenSamples> samples;
  };

  void add_source(const MixtureSource& source, const std::string& key);
  void check_format(const TokenStream& stream) const;
  void cut_parts(Source& source);
  void check_size(const Source& source) const;
  void add_set(const EvaluationSet& set);
  std::unique_ptr<const TokenSamples> part_of(const TokenStream& stream, int64_t begin,
                                              int64_t end);
  StreamRequest request_for(const std::string& path, const std::optional<DataFormat>& format,
                            const std::string& key) const;
  void check_read(const OpenFiles& files, ReadScratch& scratch) const;

  const JobSpec job_;
  const SampleForm form_;
  const int64_t evaluated_;  // samples of one evaluation
  OpenFiles files_, set_files_;
  PackedBlocks packed_;
  std::vector<Source> sources_;
  int64_t weights_ = 0;  // their sum
  std::unique_ptr<const Mixture> mixture_, held_out_mixture_;
  std::vector<Set> sets_;
};

}  // namespace smp::data
