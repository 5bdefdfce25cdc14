// The trackers' makers, for the table in trackers.cpp. Private to track.
#pragma once

#include "qft/core/clock.h"
#include "qft/track/tracker.h"

#include <memory>

namespace qft::track {

std::unique_ptr<Tracker> make_tensorboard(const Run& run, std::shared_ptr<Deadline> deadline);
std::unique_ptr<Tracker> make_mlflow(const Run& run, std::shared_ptr<Deadline> deadline);

/// Throws ConfigError where MLflow has no server here: what it is, and the line that starts one.
void require_mlflow_server();

}  // namespace qft::track
