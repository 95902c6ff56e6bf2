#pragma once

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "smp/plan/data/token_data.h"
#include "smp/plan/spec/job_spec.h"

// Corpora of a few tokens in each format, by the formats' definitions.
namespace smp::corpus {

using Tokens = std::vector<int64_t>;

inline void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

template <typename T>
std::string raw(const Tokens& tokens) {
  std::string bytes;
  for (const int64_t token : tokens) {
    const auto value = static_cast<T>(token);
    bytes.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  return bytes;
}

inline Tokens joined(const std::vector<Tokens>& documents) {
  Tokens all;
  for (const Tokens& document : documents) all.insert(all.end(), document.begin(), document.end());
  return all;
}

// Megatron's index of documents that are a sequence each.
inline std::string index_of(const std::vector<Tokens>& documents, uint8_t code, int64_t size) {
  Tokens lengths, pointers, ends = {0};
  int64_t at = 0;
  for (const Tokens& document : documents) {
    lengths.push_back(static_cast<int64_t>(document.size()));
    pointers.push_back(at);
    at += size * lengths.back();
    ends.push_back(ends.back() + 1);
  }
  return std::string("MMIDIDX\0\0", 9) + raw<uint64_t>({1}) + static_cast<char>(code) +
         raw<uint64_t>({lengths.empty() ? 0 : static_cast<int64_t>(lengths.size()),
                        static_cast<int64_t>(ends.size())}) +
         raw<int32_t>(lengths) + raw<int64_t>(pointers) + raw<int64_t>(ends);
}

template <typename T>
void write_megatron(const std::string& prefix, const std::vector<Tokens>& documents, uint8_t code) {
  write_bytes(prefix + ".bin", raw<T>(joined(documents)));
  write_bytes(prefix + ".idx", index_of(documents, code, sizeof(T)));
}

inline void write_megatron16(const std::string& prefix, const std::vector<Tokens>& documents) {
  write_megatron<uint16_t>(prefix, documents, 8);
}

inline std::string llmc(const Tokens& tokens, bool llama3) {
  Tokens header(256, 0);
  header[0] = llama3 ? 20240801 : 20240520;
  header[1] = llama3 ? 7 : 1;
  header[2] = static_cast<int64_t>(tokens.size());
  return raw<int32_t>(header) + (llama3 ? raw<uint32_t>(tokens) : raw<uint16_t>(tokens));
}

inline std::string npy(const std::string& descr, const std::string& shape,
                       const std::string& content) {
  std::string dictionary =
      "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  while ((10 + dictionary.size() + 1) % 64 != 0) dictionary += ' ';
  dictionary += '\n';
  return std::string("\x93NUMPY\x01\0", 8) +
         raw<uint16_t>({static_cast<int64_t>(dictionary.size())}) + dictionary + content;
}

// 0, 1, 2 ... in `count` documents of different lengths, so that a token says where it lies.
inline std::vector<Tokens> counted_documents(int64_t count, int64_t most, uint64_t seed = 1) {
  std::vector<Tokens> documents;
  int64_t next = 0;
  for (int64_t i = 0; i < count; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const auto length = static_cast<int64_t>(seed >> 33) % (most + 1);
    Tokens document;
    for (int64_t k = 0; k < length; ++k) document.push_back(next++);
    documents.push_back(document);
  }
  return documents;
}

inline JobSpec job_on(const std::string& path, int64_t length, int64_t batch = 1) {
  JobSpec job;
  job.model.vocab_size = 60000;
  job.training.sequence_length = length;
  job.training.global_batch = batch;
  job.training.seed = 7;
  job.training.data_path = path;
  return job;
}

struct Batch {
  Tokens tokens, targets, starts;
  bool operator==(const Batch&) const = default;
};

inline Batch room_for(int64_t count, int64_t length, int64_t sequences = 1) {
  Batch batch;
  batch.tokens.resize(static_cast<size_t>(sequences * count * length));
  batch.targets.resize(static_cast<size_t>(count * length));
  batch.starts.resize(static_cast<size_t>(count * length));
  return batch;
}

inline data::TokenBuffers buffers(Batch& batch) {
  return {batch.tokens.data(), batch.targets.data(), batch.starts.data()};
}

inline Batch read(const data::TokenData& data, int64_t step, int64_t first, int64_t count,
                  int64_t length, int64_t sequences = 1) {
  Batch batch = room_for(count, length, sequences);
  data.read(step, first, count, buffers(batch));
  return batch;
}

inline Batch read_held_out(const data::TokenData& data, int64_t first, int64_t count,
                           int64_t length, size_t set = 0) {
  Batch batch = room_for(count, length);
  data.read_held_out(set, first, count, buffers(batch));
  return batch;
}

}  // namespace smp::corpus
