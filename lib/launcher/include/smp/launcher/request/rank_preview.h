#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "smp/launcher/environment/rank_environment.h"
#include "smp/launcher/request/prepared_job.h"
#include "smp/plan/mesh/mesh.h"

namespace smp::request {

using Variables = std::vector<std::pair<std::string, std::string>>;

// A rank as it would be started, as far as that is known without asking any host.
struct RankPreview {
  environment::RankPlace place;
  Variables environment;
  std::optional<mesh::Coord> coordinates;
};

// Values that stand for what is drawn at the start (port, job id), so that equal input gives equal
// text, and for secrets.
constexpr const char* kDrawnAtStart = "<drawn at the start>";
constexpr const char* kSecret = "<secret>";
constexpr const char* kOfThisProcess = "<of this process>";

// By rank.
std::vector<RankPreview> previews_of(const PreparedJob& job);

// The same with what --env and --env-file add. Throws ConfigError for a variable to pass on that is
// not set here.
std::vector<RankPreview> previews_with_named(const PreparedJob& job);

// Variables that all ranks share; none where there is one rank. And those of a rank without them.
Variables shared_variables(const std::vector<RankPreview>& previews);
Variables own_variables(const RankPreview& preview, const Variables& shared);

}  // namespace smp::request
