// The frame of a program: how its job starts, is watched, and ends as a whole where a rank fails.
#pragma once

#include "qft/comm/session.h"

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace qft::job {

/// A session whose ranks a Watchdog watches to the end of MPI, with a timeout of a minute until Watchdog::current().set().
std::unique_ptr<comm::Session> open_watched_session(int& argc, char**& argv);

/// The frame of a program's main(): opens the Session, sets up the log for its rank, runs body(session,
/// arguments) and returns the exit code, the worst of all ranks. Arguments exclude argv[0]. If body throws on
/// every rank, each distinct message is printed once with the ranks it came from and all exit with the
/// error's code. If it throws on some ranks while others go on (they may wait in a collective for ever), the
/// failing ranks print and end the job with MPI_Abort(code) after a grace time of a few seconds.
int run_main(int argc, char** argv, const std::function<int(comm::Session&, std::span<const std::string>)>& body);

/// One of several parts of that body, whose failure need not end the program: runs it, prints errors and ends a job of which only
/// some ranks fail, as run_main() does. Returns the worst exit code of all ranks. Collective.
int run_part(const std::function<int()>& part);

}  // namespace qft::job
