#include "smp/plan/data/packing.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "plan/data/corpus.h"
#include "scratch_folder.h"
#include "smp/plan/data/token_samples.h"

namespace smp {
namespace {

using corpus::Tokens;

// pack_best_fit() row by row.
std::vector<std::vector<data::DocumentPiece>> packed(std::vector<data::DocumentPiece> pieces,
                                                     int64_t rows, int64_t length) {
  const data::PackedRows packed = data::pack_best_fit(std::move(pieces), rows, length);
  std::vector<std::vector<data::DocumentPiece>> out;
  for (size_t row = 0; row < packed.size(); ++row)
    out.emplace_back(packed[row].begin(), packed[row].end());
  return out;
}

}  // namespace

TEST_CASE("best-fit packing fills each row and leaves nothing over") {
  std::mt19937_64 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    const auto rows = static_cast<int64_t>(1 + random() % 64);
    const auto length = static_cast<int64_t>(1 + random() % 40);
    std::vector<data::DocumentPiece> pieces;
    int64_t at = 0;
    const auto most = 1 + random() % static_cast<uint64_t>(3 * length);
    while (at < rows * length) {
      const int64_t own =
          std::min<int64_t>(static_cast<int64_t>(1 + random() % most), rows * length - at);
      pieces.push_back({at, own, static_cast<int64_t>(pieces.size()), 0, true});
      at += own;
    }
    const auto documents = pieces;
    std::vector<int> seen(static_cast<size_t>(at));
    size_t cut = 0;
    for (const auto& row : packed(pieces, rows, length)) {
      int64_t filled = 0;
      for (const data::DocumentPiece& piece : row) {
        const data::DocumentPiece& whole = documents[static_cast<size_t>(piece.document)];
        REQUIRE(piece.offset == piece.begin - whole.begin);
        REQUIRE(piece.ends == (piece.offset + piece.length == whole.length));
        cut += piece.ends ? 0 : 1;
        filled += piece.length;
        for (int64_t i = 0; i < piece.length; ++i) ++seen[static_cast<size_t>(piece.begin + i)];
      }
      REQUIRE(filled == length);
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    // Cutting at each row's end would cut as often as there are rows, and documents longer than a
    // row must be cut.
    size_t must = 0;
    for (const data::DocumentPiece& piece : documents)
      must += static_cast<size_t>((piece.length - 1) / length);
    CHECK(cut <= must + static_cast<size_t>(rows));
  }
}

TEST_CASE("short documents stay whole, each where the least room is left") {
  // Of 10 places: 7 + 3, 6 + 4.
  const auto rows = packed(
      {{0, 3, 0, 0, true}, {3, 7, 1, 0, true}, {10, 4, 2, 0, true}, {14, 6, 3, 0, true}}, 2, 10);
  CHECK(rows[0] == std::vector<data::DocumentPiece>{{0, 3, 0, 0, true}, {3, 7, 1, 0, true}});
  CHECK(rows[1] == std::vector<data::DocumentPiece>{{10, 4, 2, 0, true}, {14, 6, 3, 0, true}});
}

TEST_CASE("what fits nowhere whole is cut to fill the room, and neighbours are joined again") {
  const auto rows = packed({{0, 6, 0, 0, true}, {6, 6, 1, 0, true}, {12, 8, 2, 0, true}}, 2, 10);
  CHECK(rows[0] == std::vector<data::DocumentPiece>{{6, 2, 1, 0, false}, {12, 8, 2, 0, true}});
  CHECK(rows[1] == std::vector<data::DocumentPiece>{{0, 6, 0, 0, true}, {8, 4, 1, 2, true}});
  CHECK(packed({{5, 20, 0, 0, false}}, 2, 10)[1] ==
        std::vector<data::DocumentPiece>{{15, 10, 0, 10, false}});
}

TEST_CASE("a block is packed once while it is kept, and what is kept is bounded") {
  data::PackedBlocks blocks;
  int made = 0;
  const auto get = [&](const void* owner, int64_t block, size_t pieces) {
    return blocks.get(owner, block, [&]() -> data::PackedBlock {
      ++made;
      return {{std::vector<data::DocumentPiece>(pieces, {.begin = block}), {pieces}}, {3}};
    });
  };
  const int a = 0, b = 0;
  CHECK(get(&a, 5, 2)->rows[0][1].begin == 5);
  CHECK(get(&a, 5, 2)->files == std::vector<size_t>{3});
  CHECK(made == 1);
  get(&b, 5, 2);  // another owner's
  get(&a, 6, 2);
  CHECK(made == 3);
  // Half of what may be kept each: of four the first two go.
  const auto large = static_cast<size_t>(
      data::PackedBlocks::kMostBytes / 2 / int64_t{sizeof(data::DocumentPiece)} - 100);
  for (int64_t block = 10; block < 14; ++block) get(&a, block, large);
  made = 0;
  get(&a, 13, large);
  get(&a, 12, large);
  CHECK(made == 0);
  get(&a, 5, 2);
  CHECK(made == 1);
  get(&a, 20, 3 * large);  // larger than all that may be kept
  get(&a, 20, 3 * large);
  CHECK(made == 3);
}

TEST_CASE("an epoch of packed documents has each token once, but for the tail") {
  const ScratchFolder folder;
  const auto documents = corpus::counted_documents(900, 60, 11);
  corpus::write_megatron16(folder / "a", documents);
  const auto total = static_cast<int64_t>(corpus::joined(documents).size());
  for (const int64_t length : {1, 7, 16, 50}) {
    JobSpec job = corpus::job_on(folder / "a", length, 5);
    job.training.data_pack = Packing::kDocuments;
    const data::TokenData data(job);
    const int64_t samples = (total - 1) / length;
    std::vector<int> seen(static_cast<size_t>(samples * length));
    for (int64_t sample = 0; sample < samples; ++sample) {
      const auto batch = corpus::read(data, 0, sample, 1, length);
      for (int64_t i = 0; i < length; ++i) {
        const auto at = static_cast<size_t>(i);
        const int64_t token = batch.tokens[at];
        ++seen.at(static_cast<size_t>(token));
        // The next token of the same document, or none.
        bool ends = false;
        for (const Tokens& document : documents)
          ends |= !document.empty() && document.back() == token;
        REQUIRE(batch.targets[at] == (ends ? -1 : token + 1));
        // Pieces begin where the tokens do not go on, or another document begins.
        const int64_t start = batch.starts[at];
        REQUIRE(token - batch.tokens[static_cast<size_t>(start)] == i - start);
      }
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
  }
}

}  // namespace smp
