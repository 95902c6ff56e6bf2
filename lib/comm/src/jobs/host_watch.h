#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "bootstrap/host_meeting.h"
#include "groups/seat.h"
#include "segment/job.h"
#include "waiting/descriptor.h"
#include "waiting/doorbell.h"
#include "waiting/looking.h"

namespace smp::jobs {

// Watches over the ranks of all hosts by a thread of its own and the sockets to rank 0: every rank
// says twice a second that it is there, rank 0 to all. What one rank learns (a failure, an abort, a
// rank that has left) goes to rank 0 and from there to all.
class HostWatch final : public groups::PeerWatch, public segment::Outside {
 public:
  HostWatch(groups::Seat& seat, std::vector<bootstrap::Card> cards,
            std::vector<waiting::Descriptor> sockets, std::chrono::milliseconds silence);
  ~HostWatch() override;

  std::string place_of(int rank) const override;
  void failed(const segment::FailureRecord& record, const segment::Failure& failure) override;

 private:
  using Clock = std::chrono::steady_clock;
  enum class Word : uint32_t { kHere, kFailure, kLeft };
  struct News {
    uint64_t key;  // of the group that has failed; 0: the whole job
    segment::Failure failure;
  };
  struct Line {  // to one other rank
    waiting::Descriptor socket;
    int rank = 0;
    std::string received;
    Clock::time_point heard;
    bool open = true;  // it may still be heard
  };

  bool is_hub() const { return rank_ == 0; }
  void run();
  void read(Line& line);
  void hear(Line& line, Word word, const std::string& letter);
  void ended(Line& line);
  void garbled(Line& line);
  void look_for_silent();
  void tell(Line& line, Word word, const std::string& letter);
  void tell_others(Word word, const std::string& letter, int except = -1);
  bool may_leave() const;
  void pass_on_what_is_known_here();

  groups::Seat& seat_;
  const std::shared_ptr<segment::Job> job_;
  const int rank_;
  const std::vector<bootstrap::Card> cards_;
  const std::chrono::milliseconds silence_;
  std::vector<Line> lines_;
  waiting::Doorbell bell_;
  std::mutex mutex_;
  std::deque<News> news_;       // failures found here, to be told
  bool has_passed_on_ = false;  // the job's failure, told or heard by this rank
  std::atomic<bool> leaving_{false};
  waiting::Looking lingering_;  // of rank 0, for what others say while it leaves
  std::thread thread_;
};

}  // namespace smp::jobs
