#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "bootstrap/entrance.h"
#include "bootstrap/handshake.h"
#include "smp/comm/communicator.h"
#include "waiting/descriptor.h"

namespace smp::bootstrap {

// How the ranks that are left of a job come together again. Each has a door from the beginning; the
// lowest rank that is left lets the others in, and says who goes on and where. They then meet as
// the ranks of a job of its own. Nobody is needed for it who may have died.
class Regroup {
 public:
  virtual ~Regroup() = default;
  comm::Survivors run(std::chrono::milliseconds limit);  // see Communicator::shrink

 protected:
  struct Knock {
    waiting::Descriptor socket;  // to a rank; empty when it did not open
    bool is_gone = false;        // its process has ended
  };
  struct Place {  // where the new rank 0 is met
    std::string address;
    int port = 0;
  };
  struct Beginning {  // of the new job
    int rank = 0, size = 1;
    std::string job_id;
    Place place;
    std::chrono::milliseconds limit;
  };

  Regroup(const Participant& self, waiting::Descriptor door)
      : self_(self), door_(std::move(door)) {}
  const Participant& self() const { return self_; }

  virtual Knock knock(int rank, Deadline deadline) = 0;
  virtual Place place() = 0;  // of this rank's door, which is closed before anybody comes
  virtual std::unique_ptr<comm::Communicator> begin(const Beginning& beginning) = 0;

 private:
  using milliseconds = std::chrono::milliseconds;

  std::optional<std::string> ask(int rank, Deadline answer_by, Deadline end);
  comm::Survivors let_in(Deadline end);
  void open_door(Entrance& entrance, std::vector<Entrance::Guest>& guests, std::set<int>& missing,
                 Deadline end);
  void look_for(std::set<int>& missing);
  comm::Survivors go_on(const std::vector<int>& members, const Place& place);

  Participant self_;
  waiting::Descriptor door_;
  std::set<int> gone_;
};

}  // namespace smp::bootstrap
