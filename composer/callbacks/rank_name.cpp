#include "composer/callbacks/rank_name.h"

#include "composer/core/error.h"
#include "composer/core/state.h"
#include "composer/util/name_format.h"

namespace composer::callbacks {

std::string rank_suffix(const State& state, std::initializer_list<std::string_view> formats) {
  if (state.rank == 0) return {};
  bool rank = false, node = false, on_node = false;
  for (const std::string_view format : formats)
    for (const util::NamePart& part : util::parts_of_name(format)) {
      rank |= part.placeholder && part.name == "rank";
      node |= part.placeholder && part.name == "node_rank";
      on_node |= part.placeholder && part.name == "local_rank";
    }
  return rank || (node && on_node) ? std::string() : join("-rank", state.rank);
}

}  // namespace composer::callbacks
