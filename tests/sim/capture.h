// Submits work to a stream: checks it, then queues it, or records it if the stream is being captured.
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

/// Work of a graph.
struct Recorded {
  std::string name;
  std::vector<Access> accesses;
  std::function<Progress()> run;
  bool blocking = false;
};

/// A running capture. Streams that joined it have separate clocks, which check the order within the graph.
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

/// Hold the lock while calling any of these functions.

/// Returns the running captures.
std::vector<Capture*>& captures();
/// Returns the capture of a stream, or null.
Capture* capture_of(int stream);
Capture* capture_of_this_thread();
Capture* capture_numbered(std::uint64_t number);
/// Returns the capture that receives this thread's work on `stream`; null: queue the work. Throws if the work is an error there.
Capture* capture_for(int stream, const std::string& name);

/// Returns the uses that define which pieces of work need an order, outside of captures.
Uses& uses();

/// Checks the work, then queues or records it.
void submit(Lock& lock, int stream, Work work, const std::vector<Access>& accesses);
/// The same for work of a graph.
void submit_again(Lock& lock, int stream, const Recorded& recorded);
/// Returns the error that `who` in `stream` reads or writes the memory of `conflict`.
std::string describe_conflict(const std::string& who, int stream, bool write, const Uses::Conflict& conflict);

}  // namespace qft::sim
