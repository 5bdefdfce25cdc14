#include "qft/job/batch_job.h"

#include "qft/comm/exchange.h"
#include "qft/core/clock.h"
#include "qft/core/error.h"
#include "qft/core/log.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <limits>

namespace qft::job {
namespace {

constexpr std::chrono::seconds kQueryTimeout{10};
constexpr std::string_view kAdvice =
    "training cannot stop in time: set max_hours, or let the batch system send SIGUSR1 some minutes before the end, as the job "
    "scripts do";

std::string environment(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

std::optional<double> number(std::string_view text) {
  double value = 0.0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || !std::isfinite(value) || value < 0)
    return std::nullopt;
  return value;
}

std::optional<double> seconds_in(const char* variable) {
  const std::string text = environment(variable);
  if (text.empty()) return std::nullopt;
  const auto seconds = number(text);
  if (!seconds) fail_config("the environment's {} is '{}', not a number of seconds: correct or unset it", variable, text);
  return seconds;
}

/// Returns the value of `key` in output of scontrol or qstat ("key=value", "key = value"), up to the end of the line.
std::string value_of(std::string_view text, std::string_view key) {
  for (std::size_t at = text.find(key); at != std::string_view::npos; at = text.find(key, at + 1)) {
    const bool starts = at == 0 || std::isspace(static_cast<unsigned char>(text[at - 1])) != 0;
    std::string_view rest = text.substr(at + key.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    if (!starts || !rest.starts_with('=')) continue;
    rest.remove_prefix(1);
    rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
    return std::string(rest.substr(0, rest.find('\n')));
  }
  return {};
}

/// Parses local time as both batch systems print it; returns Unix time.
std::optional<double> local_time(const std::string& text, const char* format) {
  std::tm time{};
  if (strptime(text.c_str(), format, &time) == nullptr) return std::nullopt;
  time.tm_isdst = -1;
  const std::time_t seconds = std::mktime(&time);
  return seconds < 0 ? std::nullopt : std::optional(static_cast<double>(seconds));
}

/// [[[days:]hours:]minutes:]seconds
std::optional<double> duration(std::string_view text) {
  constexpr int kMost[] = {1, 60, 3600, 86400};
  double total = 0.0;
  for (const int unit : kMost) {
    const auto colon = text.rfind(':');
    const auto part = number(colon == std::string_view::npos ? text : text.substr(colon + 1));
    if (!part) return std::nullopt;
    total += unit * *part;
    if (colon == std::string_view::npos) return total;
    text = text.substr(0, colon);
  }
  return std::nullopt;
}

std::string batch_job() {
  const std::string slurm = environment("SLURM_JOB_ID");
  return slurm.empty() ? environment("PBS_JOBID") : slurm;
}

/// True for job names of both batch systems. Other text is never passed on: it could be an option.
bool is_number_of_job(const std::string& job) {
  return std::isdigit(static_cast<unsigned char>(job[0])) != 0;
}

JobEnd slurm_end(const std::string& job, const QueryProgram& ask) {
  // One task of an array has the array's number as its job number, for which scontrol would show all tasks.
  const std::string array = environment("SLURM_ARRAY_JOB_ID"), task = environment("SLURM_ARRAY_TASK_ID");
  const bool of_array = !array.empty() && is_number_of_job(array) && !task.empty();
  // Otherwise the user's settings choose the format of times.
  const CommandOutput answer =
      ask({"env", "SLURM_TIME_FORMAT=standard", "scontrol", "show", "job", of_array ? fmt::format("{}_{}", array, task) : job});
  const std::string end = answer.ok() ? value_of(answer.text, "EndTime") : "";
  if (const auto at = local_time(end, "%Y-%m-%dT%H:%M:%S")) return {at, ""};
  if (end.starts_with("Unknown")) return {std::nullopt, fmt::format("job {} of SLURM has no time limit", job)};
  return {std::nullopt,
          fmt::format("the end of job {} of SLURM is unknown ({}): {}", job,
                      answer.ok() ? "scontrol show job prints no EndTime" : "scontrol show job: " + answer.error, kAdvice)};
}

JobEnd pbs_end(const std::string& job, double now, const QueryProgram& ask) {
  const CommandOutput answer = ask({"env", "LC_ALL=C", "qstat", "-f", job});
  auto limit = seconds_in("PBS_WALLTIME");
  if (!limit && answer.ok()) limit = duration(value_of(answer.text, "Resource_List.walltime"));
  const std::string why = answer.ok() ? "qstat -f does not print it" : "qstat -f: " + answer.error;
  if (!limit) return {std::nullopt, fmt::format("the time limit of job {} of PBS is unknown ({}): {}", job, why, kAdvice)};
  if (answer.ok()) {
    for (const char* key : {"stime", "start_time"})
      if (const auto start = local_time(value_of(answer.text, key), "%a %b %d %H:%M:%S %Y")) return {*start + *limit, ""};
    if (const auto used = duration(value_of(answer.text, "resources_used.walltime"))) return {now - *used + *limit, ""};
  }
  return {now + *limit,
          fmt::format("the start of job {} of PBS is unknown ({}): its {:.0f} s are counted from now", job, why, *limit)};
}

}  // namespace

JobRun find_job_run(const QueryProgram& ask) {
  JobRun run{batch_job(), 0};
  const std::string counted = environment("SLURM_RESTART_COUNT");
  if (!counted.empty()) run.restarts = static_cast<std::int64_t>(number(counted).value_or(0));
  if (run.job.empty() || !environment("SLURM_JOB_ID").empty() || environment("PBS_ENVIRONMENT") == "PBS_INTERACTIVE") return run;
  run.restarts.reset();
  if (!is_number_of_job(run.job)) return run;
  const CommandOutput answer = ask({"env", "LC_ALL=C", "qstat", "-f", run.job});
  if (const auto runs = number(answer.ok() ? value_of(answer.text, "run_count") : ""))
    run.restarts = std::max<std::int64_t>(0, std::llround(*runs) - 1);
  return run;
}

const JobRun& this_job() {
  static const JobRun run = find_job_run([](const auto& command) { return run_command(command, kQueryTimeout); });
  return run;
}

bool was_requeued(const JobRun& before, const JobRun& now) {
  if (now.job.empty() || now.job != before.job) return false;
  return !before.restarts || !now.restarts || *before.restarts < *now.restarts;
}

JobEnd find_job_end(double now, const QueryProgram& ask) {
  for (const char* variable : {"QFT_JOB_END", "SLURM_JOB_END_TIME"})
    if (const auto end = seconds_in(variable)) return {end, ""};
  const std::string job = batch_job();
  if (job.empty()) return {};
  if (!is_number_of_job(job))
    return {std::nullopt,
            fmt::format("the name of the batch job, '{}', is not a job number: its end is unknown; {}", job, kAdvice)};
  return environment("SLURM_JOB_ID").empty() ? pbs_end(job, now, ask) : slurm_end(job, ask);
}

std::optional<double> job_end(comm::Communicator& comm) {
  double at = std::numeric_limits<double>::quiet_NaN();
  comm::agreed(comm, [&] {
    if (comm.rank() != 0) return;
    const JobEnd end = find_job_end(unix_seconds(), [](const auto& command) { return run_command(command, kQueryTimeout); });
    if (!end.note.empty()) log::warn("{}", end.note);
    if (end.at) at = *end.at;
  });
  at = comm::broadcast_value(comm, at);
  return std::isnan(at) ? std::nullopt : std::optional(at);
}

}  // namespace qft::job
