// h5py reads what qft writes.
#include "qft/pack/reader.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "fixture.h"
#include "io/temp_dir.h"
#include "test_paths.h"
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace qft::pack {
namespace {

TEST(PackInterop, H5pyReadsItemsTagsAndAttributes) {
  const std::string python = test::kSourceDir + "/.venv/bin/python";
  if (!std::filesystem::exists(python)) GTEST_SKIP() << "no .venv: run scripts/setup.sh";
  const test::TempDir dir;
  const auto pack = test::build_pack(dir / "p.h5", 40, 2);
  std::ofstream expected(dir / "expected.jsonl");
  for (std::int64_t i = 0; i < pack->num_items(); ++i) {
    const encode::EncodedItem item = test::make_item(i, 2);
    nlohmann::json sequences = nlohmann::json::array(), tags = nlohmann::json::object();
    for (const encode::EncodedSequence& sequence : item.sequences) {
      nlohmann::json spans = nlohmann::json::array();
      for (const encode::Span& span : sequence.label_spans) spans.push_back({span.begin, span.end});
      sequences.push_back({{"ids", sequence.ids}, {"label_spans", spans}});
    }
    for (const auto& [name, value] : item.tags) tags[name] = value;
    expected << nlohmann::json{{"sequences", sequences},
                               {"tags", tags},
                               {"category", item.category},
                               {"dataset", item.dataset},
                               {"source_index", item.source_index}}
             << "\n";
  }
  expected.close();
  const std::string command = python + " " + test::kSourceDir + "/tests/pack/h5py_interop.py " + (dir / "p.h5").string() + " " +
                              (dir / "expected.jsonl").string() + " " + test::kSourceDir + "/docs/data.md";
  EXPECT_EQ(std::system(command.c_str()), 0);
}

}  // namespace
}  // namespace qft::pack
