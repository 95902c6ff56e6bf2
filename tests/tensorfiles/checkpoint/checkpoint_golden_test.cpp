#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "smp/tensorfiles/checkpoint/checkpoint_reader.h"
#include "smp/tensorfiles/safetensors/safetensors.h"

// tests/golden/checkpoint/step-00000004: a run of job.yaml beside it saved it, on pipeline 2 x
// tensor 2 x ZeRO-1 over 2. as-torch-reads.safetensors is what PyTorch's HuggingFaceStorageReader
// made of it (scripts/make-golden-checkpoint).
namespace smp {

TEST_CASE("PyTorch reads of a checkpoint what we read") {
  const std::string golden = SMP_SOURCE_DIR "/tests/golden/checkpoint";
  checkpoint::CheckpointReader reader(golden + "/step-00000004");
  CHECK(reader.step() == 4);
  const safetensors::SafetensorsReader torch(golden + "/as-torch-reads.safetensors");
  int64_t in_rectangles = 0;
  for (const safetensors::SafetensorsEntry& entry : torch.header().entries) {
    INFO(entry.name);
    REQUIRE(reader.find(entry.name) != nullptr);
    std::vector<std::byte> theirs(static_cast<size_t>(entry.bytes())), ours(theirs.size());
    torch.read(entry, theirs.data());
    model::Box box{0, entry.shape[0], 0, entry.shape.size() == 2 ? entry.shape[1] : 1};
    safetensors::TensorPiece piece{entry.name, entry.shape, entry.dtype, box,
                                   0,          box.size(),  ours.data()};
    reader.read(piece);
    CHECK(ours == theirs);
    in_rectangles += reader.find(entry.name)->sizes != entry.shape ? 1 : 0;
  }
  CHECK(torch.header().entries.size() == 68);
  CHECK(in_rectangles > 30);  // most tensors are cut
}

}  // namespace smp
