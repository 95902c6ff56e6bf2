#pragma once

#include <cstdint>
#include <vector>

#include "smp/plan/data/token_stream.h"

namespace smp {

// Windows whose documents are dealt to each other's places.
inline constexpr int64_t kPackedTogether = 64;

// Puts pieces into `rows` rows of `length` tokens, of which there are as many as the pieces have:
// nothing is left over and no place stays empty. Best-fit decreasing (Johnson 1974; for training:
// Ding et al. 2024): the longest piece first, where the least room is left behind it; what fits
// nowhere whole is cut to fill the room that is left. Each row is in the order of the stream. Pure.
std::vector<std::vector<DocumentPiece>> pack_best_fit(std::vector<DocumentPiece> pieces,
                                                      int64_t rows, int64_t length);

}  // namespace smp
