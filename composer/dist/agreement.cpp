#include "composer/dist/agreement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <ATen/ops/zeros.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"
#include "composer/util/text.h"

namespace composer::dist {
namespace {

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + '\n';
  return text;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> lines;
  util::InText stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// Describes the first line in which the two lists differ. Empty if they are equal.
std::string first_difference(const std::vector<std::string>& of_rank_0, const std::vector<std::string>& own, int rank) {
  for (std::size_t i = 0; i < std::max(of_rank_0.size(), own.size()); ++i) {
    const std::string theirs = i < of_rank_0.size() ? of_rank_0[i] : "nothing more";
    const std::string ours = i < own.size() ? own[i] : "nothing more";
    if (theirs != ours) return join("rank 0 has ", theirs, "; rank ", rank, " has ", ours);
  }
  return {};
}

}  // namespace

std::string describe_tensor(const std::string& name, const at::Tensor& tensor) {
  std::string text = join(name, ": ", tensor.scalar_type(), ' ', tensor.sizes());
  if (!tensor.is_contiguous()) text += join(" with strides ", tensor.strides());
  return text;
}

void check_same_on_all_ranks(World& world, const std::string& who, const std::vector<std::string>& lines) {
  const std::vector<std::string> own = split(joined(lines));  // split again: a name may contain a line break
  const std::string of_rank_0 = world.broadcast(joined(own), 0);
  for (const std::string& difference : world.all_gather(first_difference(split(of_rank_0), own, world.rank())))
    if (!difference.empty()) throw ConfigError(who, ": the ranks differ: ", difference);
}

std::vector<bool> have_gradients(World& world, const std::vector<at::Tensor>& parameters) {
  const at::Tensor present = at::zeros({static_cast<std::int64_t>(parameters.size())}, at::kByte);
  auto* flags = present.mutable_data_ptr<std::uint8_t>();
  for (std::size_t i = 0; i < parameters.size(); ++i) flags[i] = parameters[i].grad().defined() ? 1 : 0;
  world.max(present);
  return std::vector<bool>(flags, flags + parameters.size());
}

}  // namespace composer::dist
