// Renders jobs for chat_templates.py. Usage: jinja_probe JOBS, a file with JSON lines. {"template": text} sets the template for
// the following jobs; the answer has its variables, or the reason for its refusal. {"variables": {...}, "now": [...]} renders it;
// the answer has text and ranges, or the error. {"repeat": N, ...} answers the seconds for N renderings.
#include "qft/core/error.h"
#include "qft/jinja/template.h"

#include <chrono>
#include <ctime>
#include <fstream>
#include <iostream>
#include <optional>
#include <string>

namespace {

using qft::Json;
using qft::jinja::Rendering;
using qft::jinja::RenderOptions;
using qft::jinja::Template;

std::tm read_time(const Json& fields) {
  std::tm now{};
  now.tm_year = fields[0].get<int>() - 1900;
  now.tm_mon = fields[1].get<int>() - 1;
  now.tm_mday = fields[2].get<int>();
  now.tm_hour = fields[3].get<int>();
  now.tm_min = fields[4].get<int>();
  now.tm_sec = fields[5].get<int>();
  now.tm_isdst = -1;
  std::mktime(&now);
  return now;
}

Json parse(const Json& job, std::optional<Template>& current) {
  Json answer;
  current.reset();
  try {
    current = Template::parse(job["template"].get<std::string>(), job.value("name", "template"));
    answer["variables"] = current->variables();
    answer["generation"] = current->has_generation();
  } catch (const qft::Error& error) {
    answer["error"] = error.what();
  }
  return answer;
}

Json render(const Json& job, const Template& current) {
  Json answer;
  RenderOptions options;
  if (job.contains("now")) options.now = read_time(job["now"]);
  try {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 1; i < job.value("repeat", 1); ++i) static_cast<void>(current.render(job["variables"], options));
    Rendering rendering = current.render(job["variables"], options);
    if (job.contains("repeat"))
      answer["seconds"] = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    answer["text"] = std::move(rendering.text);
    answer["ranges"] = Json::array();
    for (const qft::jinja::ByteRange& range : rendering.generated) answer["ranges"].push_back({range.begin, range.end});
  } catch (const qft::jinja::TemplateRefusal& refusal) {
    answer["error"] = refusal.what();
    answer["refusal"] = refusal.message();
  } catch (const qft::Error& error) {
    answer["error"] = error.what();
  }
  return answer;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: jinja_probe JOBS\n";
    return 2;
  }
  std::ifstream jobs(argv[1]);
  std::optional<Template> current;
  for (std::string line; std::getline(jobs, line);) {
    const Json job = qft::parse_python_json(line, "job");
    Json answer;
    if (job.contains("template"))
      answer = parse(job, current);
    else if (current)
      answer = render(job, *current);
    else
      answer["error"] = "the template was refused";
    std::cout << qft::dump_python_json(answer) << '\n';
  }
}
