// The frame of a program: starts and watches its job, and ends the whole job if a rank fails.
#pragma once

#include "qft/comm/session.h"

#include <functional>
#include <memory>
#include <span>
#include <string>

namespace qft::job {

/// Opens a session and a Watchdog that watches its ranks until MPI ends. The timeout is one minute until
/// Watchdog::current().set().
std::unique_ptr<comm::Session> open_watched_session(int& argc, char**& argv);

/// The frame of main(): opens the Session, sets up the log for this rank, runs body(session, arguments) and returns the worst
/// exit code of all ranks. Arguments exclude argv[0]. If body throws on every rank, prints each distinct message once with its
/// ranks; all ranks exit with the error's code. If it throws on some ranks while others continue (they may wait in a collective
/// forever), the failing ranks print and end the job with MPI_Abort(code) after a grace time of a few seconds.
int run_main(int argc, char** argv, const std::function<int(comm::Session&, std::span<const std::string>)>& body);

/// Runs one of several parts of that body; its failure need not end the program. Prints errors and ends a job in which only some
/// ranks fail, as run_main() does. Returns the worst exit code of all ranks. Collective.
int run_part(const std::function<int()>& part);

}  // namespace qft::job
