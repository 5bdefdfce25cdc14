// Functions that make trackers, for the table in trackers.cpp. Private to track.
#pragma once

#include "qft/core/clock.h"
#include "qft/track/tracker.h"

#include <memory>

namespace qft::track {

std::unique_ptr<Tracker> make_tensorboard(const Run& run, std::shared_ptr<Deadline> deadline);
std::unique_ptr<Tracker> make_mlflow(const Run& run, std::shared_ptr<Deadline> deadline);

/// Throws ConfigError if MLFLOW_TRACKING_URI names no server, with the command that starts one.
void require_mlflow_server();

}  // namespace qft::track
