#include "qft/parallel/objectives.h"


namespace qft::parallel {
namespace {

using Made = std::unique_ptr<Objective>;
using config::RunConfig;

Made token_mean(const RunConfig&, const BatchTotals& totals) { return std::make_unique<TokenMeanLoss>(totals); }

constexpr ObjectiveRow kObjectives[] = {
    {"cross_entropy", ObjectiveKind::row_local, 1, token_mean},
};

}  // namespace

const ObjectiveRow& objective_of(const RunConfig&) { return kObjectives[0]; }

}  // namespace qft::parallel
