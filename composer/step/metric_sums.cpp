#include "composer/step/metric_sums.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/core/metric_parts.h"
#include "composer/dist/world.h"
#include "composer/util/text.h"

namespace composer {
namespace {

std::string text_of(const at::Tensor& sum) {
  if (!sum.defined()) return "-";
  std::string text = join(static_cast<int>(sum.scalar_type()), ' ', sum.is_cpu() ? 1 : 0, ' ', sum.dim());
  for (const std::int64_t size : sum.sizes()) text += join(' ', size);
  return text;
}

// Adds up tensors of one kind over ranks, in one message.
void add_up(dist::World& world, const std::vector<at::Tensor*>& sums) {
  std::vector<at::Tensor> rows;
  rows.reserve(sums.size());
  for (const at::Tensor* sum : sums) rows.push_back(sum->reshape({-1}));
  const at::Tensor flat = at::cat(rows);
  world.sum(flat);
  std::int64_t from = 0;
  for (at::Tensor* sum : sums) {
    const std::int64_t length = sum->numel();
    *sum = flat.narrow(0, from, length).view(sum->sizes());
    from += length;
  }
}

}  // namespace

void MetricSums::check(Metric& metric) {
  bool has_sums = false;
  metric.visit_sums([&](std::string_view, at::Tensor&) { has_sums = true; });
  if (!has_sums && !dynamic_cast<KeepsRows*>(&metric))
    throw ConfigError("metric ", metric.name(),
                      ": has no sums that could be added up over processes, or taken back where ",
                      "memory is short; override Metric::visit_sums");
}

// Once all shapes are known they stay as they are, so ranks exchange them only until then.
void MetricSums::learn(dist::World& world, const std::vector<at::Tensor>& own, const std::vector<std::string>& names) {
  if (shapes_.size() != own.size()) shapes_.assign(own.size(), {});
  if (std::ranges::all_of(shapes_, [](const Shape& shape) { return shape.known; })) return;
  std::string mine;
  for (const at::Tensor& sum : own) mine += text_of(sum) + '\n';
  std::vector<std::string> seen(own.size(), "-");
  for (const std::string& lines : world.all_gather(mine)) {
    util::InText in(lines);
    std::string line;
    for (std::size_t i = 0; i < own.size() && std::getline(in, line); ++i) {
      if (line == "-" || line == seen[i]) continue;
      if (seen[i] != "-")
        throw ConfigError("metric ", names[i],
                          ": its sums have different shapes on different ranks, so they cannot be ",
                          "added up (type, place, dimensions: ", seen[i], " and ", line, ")");
      seen[i] = line;
    }
  }
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (seen[i] == "-") continue;
    util::InText in(seen[i]);
    int type = 0, on_cpu = 1;
    std::size_t dims = 0;
    in >> type >> on_cpu >> dims;
    Shape& shape = shapes_[i];
    shape = {.known = true, .on_cpu = on_cpu != 0, .type = static_cast<at::ScalarType>(type), .sizes = {}};
    shape.sizes.resize(dims);
    for (std::int64_t& size : shape.sizes) in >> size;
  }
}

MetricSums::OverRanks::OverRanks(MetricSums& sums, dist::World& world,
                                 const std::vector<std::shared_ptr<Metric>>& metrics, bool updated, at::Device device)
    : metrics_(metrics) {
  const at::NoGradGuard no_grad;
  std::vector<std::string> names;
  for (const auto& metric : metrics_) {
    check(*metric);
    metric->visit_sums([&](std::string_view, at::Tensor& sum) {
      own_.push_back(sum);
      names.push_back(metric->name());
    });
  }
  sums.learn(world, own_, names);
  std::vector<at::Tensor> all = own_;
  all.push_back(at::full({1}, updated ? 1 : 0, at::kLong));
  std::vector<std::pair<std::string, std::vector<at::Tensor*>>> kinds;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!all[i].defined()) {
      const Shape& shape = sums.shapes_[i];
      if (!shape.known) continue;
      all[i] =
          at::zeros(shape.sizes, at::TensorOptions(shape.on_cpu ? at::Device(at::kCPU) : device).dtype(shape.type));
    }
    const std::string kind = join(static_cast<int>(all[i].scalar_type()), all[i].is_cpu());
    const auto found = std::ranges::find(kinds, kind, [](const auto& entry) { return entry.first; });
    if (found != kinds.end())
      found->second.push_back(&all[i]);
    else
      kinds.push_back({kind, {&all[i]}});
  }
  std::ranges::sort(kinds, {}, [](const auto& entry) { return entry.first; });  // the same order on all ranks
  for (const auto& [kind, list] : kinds) add_up(world, list);
  updated_ = all.back().item<std::int64_t>() > 0;
  std::size_t next = 0;
  for (const auto& metric : metrics_) metric->visit_sums([&](std::string_view, at::Tensor& sum) { sum = all[next++]; });
  gather_rows(world, device);
}

// Each rank writes its rows among zeros in their place, and the sum over ranks has all rows: their numbers differ by
// rank, which a gathering of tensors does not allow.
void MetricSums::OverRanks::gather_rows(dist::World& world, at::Device device) {
  std::vector<std::pair<std::string, std::vector<at::Tensor>*>> lists;  // with the names of the metrics
  for (const auto& metric : metrics_)
    if (auto* keeper = dynamic_cast<KeepsRows*>(metric.get()))
      keeper->visit_rows([&](std::string_view, std::vector<at::Tensor>& rows) {
        own_rows_.push_back(rows);
        if (rows.size() > 1) rows = {at::cat(rows)};
        lists.emplace_back(metric->name(), &rows);
      });
  if (lists.empty()) return;
  std::string
      mine;  // of each list the type, place and number of dimensions, the sizes of a row, and the number of rows
  for (const auto& [name, rows] : lists) {
    if (rows->empty()) {
      mine += "-\n";
      continue;
    }
    const at::Tensor& own = rows->front();
    mine += join(text_of(own.select(0, 0)), '\t', own.size(0), '\n');
  }
  std::vector<std::string> kinds(lists.size());
  std::vector<std::int64_t> totals(lists.size()), before(lists.size());
  const auto all_lines = world.all_gather(mine);
  for (std::size_t rank = 0; rank < all_lines.size(); ++rank) {
    util::InText in(all_lines[rank]);
    std::string line;
    for (std::size_t i = 0; i < lists.size() && std::getline(in, line); ++i) {
      if (static_cast<int>(rank) == world.rank()) before[i] = totals[i];
      if (line == "-") continue;
      const std::size_t tab = line.find('\t');
      const std::string kind = line.substr(0, tab);
      if (kinds[i].empty()) kinds[i] = kind;
      if (kinds[i] != kind)
        throw ConfigError("metric ", lists[i].first, ": its rows have different shapes on different ranks, so they ",
                          "cannot be put together (type, place, dimensions: ", kinds[i], " and ", kind, ")");
      util::InText number(line.substr(tab + 1));
      std::int64_t count = 0;
      number >> count;
      totals[i] += count;
    }
  }
  for (std::size_t i = 0; i < lists.size(); ++i) {
    if (kinds[i].empty()) continue;
    util::InText in(kinds[i]);
    int type = 0, on_cpu = 1;
    std::size_t dims = 0;
    in >> type >> on_cpu >> dims;
    std::vector<std::int64_t> sizes(dims + 1, totals[i]);
    for (std::size_t d = 1; d <= dims; ++d) in >> sizes[d];
    std::vector<at::Tensor>& rows = *lists[i].second;
    const at::Tensor all = at::zeros(
        sizes, at::TensorOptions(on_cpu != 0 ? at::Device(at::kCPU) : device).dtype(static_cast<at::ScalarType>(type)));
    if (!rows.empty()) all.narrow(0, before[i], rows.front().size(0)).copy_(rows.front());
    world.sum(all);
    rows = {all};
  }
}

MetricSums::OverRanks::~OverRanks() {
  if (stays_) return;
  std::size_t next = 0, next_rows = 0;
  for (const auto& metric : metrics_) {
    metric->visit_sums([&](std::string_view, at::Tensor& sum) { sum = own_[next++]; });
    if (auto* keeper = dynamic_cast<KeepsRows*>(metric.get()))
      keeper->visit_rows([&](std::string_view, std::vector<at::Tensor>& rows) { rows = own_rows_[next_rows++]; });
  }
}

}  // namespace composer
