#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "smp/plan/data_files.h"
#include "smp/plan/file_identity.h"

// Training data: the bytes of text files as tokens. The files in order, a 0 byte between two, are
// one long text; sample i of step s is the window of sequence_length + 1 bytes at a start drawn
// from (seed, "data", s, i). i counts over the global batch, so each layout sees the same batch.
// With two sequences to a sample the window has 2 x sequence_length bytes: the encoder's tokens are
// the first half, the targets the second, and the decoder's tokens are the targets one to the
// right, behind a 0 (T5's decoder_start_token_id), which text does not have. What evaluation needs
// is held out at the end of the text: samples one after the other, whose windows no training sample
// touches. Windows are read from the files when asked for; nothing else is kept in memory.
// Immutable; safe from any thread.
namespace smp {

class TextData {
 public:
  // files: as find_data_files() gives them for this sequence length. Looks at each: throws where
  // one cannot be read, or is being written.
  TextData(DataFiles files, int64_t sequence_length, uint64_t seed, int64_t held_out_samples = 0,
           int64_t sequences_per_sample = 1);

  // tokens[k], targets[k]: samples first_sample + k of `step`; targets are one byte ahead. Both
  // hold count * sequence_length elements, tokens twice as many where the decoder's follow the
  // encoder's; what is null is left out. Throws std::runtime_error, with its path, when a file
  // cannot be read, or has changed since this object was made.
  void read(int64_t step, int64_t first_sample, int64_t count, int64_t* tokens,
            int64_t* targets) const;

  // The same of held-out samples; first_sample counts from 0. Those behind the last fill a batch:
  // it again, with kNoTarget as targets.
  void read_held_out(int64_t first_sample, int64_t count, int64_t* tokens, int64_t* targets) const;

  std::vector<FileIdentity> files() const;
  int64_t window_start(int64_t step, int64_t sample) const;  // byte of the text
  int64_t total_bytes() const { return files_.total_bytes; }
  int64_t trained_bytes() const { return trained_bytes_; }  // of them, without what is held out

 private:
  // Sample k of `count`, whose window begins at `start`.
  void read_window(int64_t start, int64_t k, int64_t count, int64_t* tokens,
                   int64_t* targets) const;
  void read_bytes(int64_t begin, int64_t count, unsigned char* out) const;
  void read_file(size_t file, int64_t offset, int64_t count, unsigned char* out) const;

  DataFiles files_;
  std::vector<KnownFile> known_;  // the same files, as they were
  std::vector<int64_t> begins_;   // first byte of each file in the text
  int64_t sequence_length_, sequences_;
  int64_t sample_bytes_;  // from a held-out sample to the next
  int64_t window_bytes_;
  uint64_t seed_;
  int64_t trained_bytes_;  // the text up to what is held out
  int64_t held_out_samples_;
};

}  // namespace smp
