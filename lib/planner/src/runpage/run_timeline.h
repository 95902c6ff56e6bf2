#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "page/html.h"
#include "smp/plan/runinfo/step_timeline.h"
#include "smp/planner/runs/run_record.h"

// A step of each rank as a picture of a run's page, and what such pictures share. Pure.
namespace smp::runpage {

// The step that each rank of a run recorded without being asked (step_timeline.h), above the passes
// that the plan predicted.
std::string timeline_section(const runs::RunRecord& run);

inline constexpr size_t kMostBoxes = 8000;  // of a timeline
inline constexpr int kWaitingColour = 11;
extern const std::vector<page::Meaning> kStepMeanings;  // of the colours
int colour_of(const runinfo::TimelinePiece& piece);
// "waiting in receive of microbatch 2: 1.5 ms"; `ns` long.
std::string name_of(const runinfo::TimelinePiece& piece, int64_t ns);
// Layer after layer of one pass, without the short pieces between them that no eye would see.
std::vector<runinfo::TimelinePiece> merged(const std::vector<runinfo::TimelinePiece>& pieces,
                                           int64_t unseen_ns);
std::string timeline_tick(double seconds);

}  // namespace smp::runpage
