// Work on its way into a stream: checked, then queued, or recorded where the stream is being captured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "order.h"
#include "queues.h"
#include "sim.h"

namespace qft::sim {

/// A graph's work.
struct Recorded {
  std::string name;
  std::vector<Access> accesses;
  std::function<Progress()> run;
  bool blocking = false;
};

/// A capture under way: streams that joined it have clocks of its own, in which the order within the graph is checked.
struct Capture {
  struct Lane {
    Clock clock;
    std::uint64_t pushed = 0;
  };
  std::uint64_t number = 0;  ///< counts from 1
  std::thread::id thread;
  int origin = 0;
  std::uint64_t pool = 0;
  std::map<int, Lane> lanes;
  Uses uses;
  std::vector<Recorded> recorded;
};

/// The lock is held for all of these.

/// Those under way.
std::vector<Capture*>& captures();
/// One of them, or null.
Capture* capture_of(int stream);
Capture* capture_of_this_thread();
Capture* capture_numbered(std::uint64_t number);
/// The capture that work of this thread on `stream` goes into; null: it is queued. Throws where that is an error.
Capture* capture_for(int stream, const std::string& name);

/// What any two pieces of work need of an order among them, outside of captures.
Uses& uses();

/// Checks and queues or records it.
void submit(Lock& lock, int stream, Work work, const std::vector<Access>& accesses);
/// The same for a graph's work.
void submit_again(Lock& lock, int stream, const Recorded& recorded);
/// The error about `who` in `stream`, which reads or writes what `conflict` meets.
std::string describe_conflict(const std::string& who, int stream, bool write, const Uses::Conflict& conflict);

}  // namespace qft::sim
