#include "composer/dist/sharded.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/dist/sharded_messages.h"
#include "composer/optim/optimizer.h"
#include "tests/dist/results_in_ranks.h"
#include "tests/dist/small_net.h"
#include "tests/support/doctest.h"

namespace composer::dist::test::sharded_test {
namespace {

using optim::NamedOptimizer;
using Named = Sharded::Named;
using State = std::vector<Sharded::StateTensor>;

const std::vector<std::vector<std::int64_t>> kShapes = {{33, 17}, {17},   {4, 3, 3, 3}, {33, 17},  {1},
                                                        {},       {6, 5}, {0, 4},       {130, 140}};

// Values that depend on the arguments only: threads share libtorch's random numbers.
at::Tensor values(std::size_t parameter, int step, const std::vector<std::int64_t>& shape) {
  at::Generator random = at::detail::createCPUGenerator(1000 * parameter + static_cast<std::uint64_t>(step));
  return at::randn(shape, random);
}

Named make_parameters() {
  Named parameters;
  for (std::size_t i = 0; i < kShapes.size(); ++i)
    parameters.emplace_back(join("layer", i, kShapes[i].size() < 2 ? ".bias" : ".weight"),
                            values(i, 0, kShapes[i]).requires_grad_());
  return parameters;
}

std::shared_ptr<NamedOptimizer> make_optimizer(const optim::AnyOptimizer& factory, const Named& parameters) {
  optim::NamedParameters list;
  for (const auto& [name, tensor] : parameters) list.push_back({name, tensor});
  return std::dynamic_pointer_cast<NamedOptimizer>(factory.make(list));
}

void keep_own(NamedOptimizer& optimizer, const Sharded& sharded) {
  std::vector<optim::NamedParameters> own;
  for (const auto& group : optimizer.param_groups()) {
    own.emplace_back();
    for (const at::Tensor& parameter : group.params())
      if (sharded.is_own(parameter)) own.back().push_back({"", parameter});
  }
  optimizer.set_parameters(own);
}

void set_gradients(const Named& parameters, int step) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    at::Tensor& gradient = parameters[i].second.mutable_grad();
    gradient.reset();
    if (step != 3 || i != 2) gradient = values(i, step, kShapes[i]);  // once, one has none
  }
}

State state_of(const NamedOptimizer& optimizer) {
  State state;
  for (const auto& [parameter, key, tensor] : optimizer.state_tensors()) state.push_back({parameter, key, tensor});
  return state;
}

void load(NamedOptimizer& optimizer, const State& state) {
  std::vector<optim::StateTensor> tensors;
  for (const auto& [parameter, key, tensor] : state) tensors.push_back({parameter, key, tensor});
  optimizer.load_state_tensors(tensors);
}

struct Trained {
  Gradients parameters;
  State state;  // of all ranks, on rank 0
};

State copy_of(const State& state) {
  State copy = state;
  for (auto& one : copy) one.tensor = one.tensor.clone();
  return copy;
}

// Steps [from, to) of the optimizer on this number of ranks, beginning with what `before` has left. 0 ranks: the
// optimizer as it is, not sharded.
std::vector<Trained> train(int ranks, const optim::AnyOptimizer& factory, int from, int to, const Trained& before) {
  return results_in_ranks(std::max(ranks, 1), [&](const std::shared_ptr<World>& world) {
    const Named parameters = make_parameters();
    const auto optimizer = make_optimizer(factory, parameters);
    std::optional<Sharded> sharded;
    if (ranks > 0) {
      sharded.emplace(world, parameters);
      keep_own(*optimizer, *sharded);
    }
    for (std::size_t i = 0; i < before.parameters.size(); ++i)
      parameters[i].second.detach().copy_(before.parameters[i]);
    if (!before.state.empty()) load(*optimizer, sharded ? sharded->own_part(before.state) : before.state);
    for (int step = from; step < to; ++step) {
      set_gradients(parameters, step);
      for (std::size_t g = 0; g < optimizer->param_groups().size(); ++g)
        optim::set_learning_rate(*optimizer, g, 0.01 / (1 + step));
      optimizer->step();
      if (sharded) sharded->exchange();
    }
    Trained trained;
    for (const auto& [name, tensor] : parameters) trained.parameters.push_back(tensor.detach().clone());
    const State own = copy_of(state_of(*optimizer));
    trained.state = sharded ? sharded->gather(own) : own;
    return trained;
  });
}

struct Row {
  std::string name;
  optim::AnyOptimizer factory;
};
std::vector<Row> rows() {
  return {{"sgd", optim::sgd({.lr = 0.01, .momentum = 0.9})},
          {"adamw", optim::adamw({.groups = {{.match = "*.bias", .weight_decay = 0.}}})},
          {"lamb", optim::lamb({})},
          {"muon", optim::muon({.adamw_for = {"layer6*", "layer7*"}})},
          {"adafactor", optim::adafactor({})}};
}

void check_equal(const State& a, const State& b) {
  REQUIRE(a.size() == b.size());
  const auto find = [&](const Sharded::StateTensor& like) -> at::Tensor {
    for (const auto& [parameter, key, tensor] : b)
      if (parameter == like.parameter && key == like.key) return tensor;
    return {};
  };
  for (const auto& one : a) {
    const at::Tensor other = find(one);
    CAPTURE(one.parameter);
    CAPTURE(one.key);
    REQUIRE(other.defined());
    CHECK(at::equal(one.tensor.nan_to_num(), other.nan_to_num()));  // a mean of no elements is NaN
  }
}

TEST_CASE("A sharded optimizer gives the bits of one that is not sharded, parameters and state") {
  for (const Row& row : rows()) {
    CAPTURE(row.name);
    const Trained whole = train(0, row.factory, 1, 6, {}).front();
    for (const int ranks : {1, 2, 4}) {
      CAPTURE(ranks);
      const std::vector<Trained> sharded = train(ranks, row.factory, 1, 6, {});
      for (const Trained& one : sharded) CHECK(equal_bits(one.parameters, whole.parameters));
      check_equal(whole.state, sharded.front().state);
      for (std::size_t r = 1; r < sharded.size(); ++r) CHECK(sharded[r].state.empty());
    }
  }
}

TEST_CASE("The state of a sharded optimizer can be loaded on another number of ranks, and without sharding") {
  for (const Row& row : rows()) {
    CAPTURE(row.name);
    const Trained whole = train(0, row.factory, 1, 6, {}).front();
    for (const auto& [first, second] : {std::pair(4, 2), std::pair(2, 4), std::pair(2, 0), std::pair(0, 2)}) {
      CAPTURE(first);
      CAPTURE(second);
      const Trained before = train(first, row.factory, 1, 3, {}).front();
      CHECK(equal_bits(train(second, row.factory, 3, 6, before).front().parameters, whole.parameters));
    }
  }
}

TEST_CASE("Each parameter has one owner, and the owners' shares are as equal as the parameters allow") {
  const auto by_rank = results_in_ranks(4, [](const std::shared_ptr<World>& world) {
    Named parameters;
    for (const std::int64_t size : {10, 400, 30, 200, 100, 90, 10, 400, 300})
      parameters.emplace_back(join("weight ", parameters.size()), at::ones({size}));
    const Sharded sharded(world, parameters);
    std::vector<int> owners;
    for (const auto& [name, tensor] : parameters) {
      owners.push_back(sharded.owner_of(tensor));
      if (sharded.is_own(tensor) != (owners.back() == world->rank())) owners.back() = -1;
    }
    if (sharded.largest_share() > 0.261) owners.push_back(-2);  // 400 of 1540
    return owners;
  });
  for (const std::vector<int>& owners : by_rank) CHECK(owners == std::vector<int>{3, 0, 3, 3, 3, 2, 3, 1, 2});
}

TEST_CASE("Parameters that stay keep their owner when others come and go, and frozen ones are divided last") {
  const auto by_rank = results_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const auto parameter = [](std::int64_t size, bool trains) { return at::ones({size}).set_requires_grad(trains); };
    const at::Tensor a = parameter(30, true), b = parameter(20, true), frozen = parameter(1000, false);
    Sharded sharded(world, {{"frozen", frozen}, {"a", a}, {"b", b}});
    std::vector<int> owners = {sharded.owner_of(a), sharded.owner_of(b), sharded.owner_of(frozen)};
    const at::Tensor c = parameter(40, true), d = parameter(10, true);
    sharded.set_parameters({{"b", b}, {"c", c}, {"d", d}});
    sharded.check();
    for (const at::Tensor& one : {b, c, d}) owners.push_back(sharded.owner_of(one));
    return owners;
  });
  for (const std::vector<int>& owners : by_rank) CHECK(owners == std::vector<int>{0, 1, 1, 1, 0, 1});
}

TEST_CASE("An exchange of some parameters leaves the others alone, whatever the size of messages") {
  for (const int ranks : {2, 3})
    for (const std::int64_t message_bytes : {std::int64_t{1}, std::int64_t{2000}, std::int64_t{25} << 20}) {
      CAPTURE(ranks);
      CAPTURE(message_bytes);
      const auto by_rank = results_in_ranks(ranks, [&](const std::shared_ptr<World>& world) {
        Named parameters = make_parameters();
        parameters.emplace_back("image",
                                at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_());
        Sharded sharded(world, parameters);
        for (const auto& [name, tensor] : parameters) tensor.detach().fill_(1 + world->rank());
        std::vector<bool> changed(parameters.size(), true);
        changed[3] = changed[5] = false;
        sharded.exchange(changed, message_bytes);
        bool right = true;
        for (std::size_t i = 0; i < parameters.size(); ++i) {
          const at::Tensor& tensor = parameters[i].second;
          const int expected = 1 + (changed[i] ? sharded.owner_of(tensor) : world->rank());
          right = right && tensor.eq(expected).all().item<bool>();
        }
        return right;
      });
      for (const bool right : by_rank) CHECK(right);
    }
}

TEST_CASE("Gradients reduced to their owners are the mean over ranks, and undefined elsewhere") {
  for (const int ranks : {2, 4})
    for (const std::int64_t message_bytes : {std::int64_t{1}, std::int64_t{4000}, std::int64_t{25} << 20}) {
      CAPTURE(ranks);
      CAPTURE(message_bytes);
      const auto by_rank = results_in_ranks(ranks, [&](const std::shared_ptr<World>& world) {
        Named parameters = make_parameters();
        parameters.emplace_back("double", values(9, 0, {7, 3}).to(at::kDouble).requires_grad_());
        parameters.emplace_back("image",
                                at::ones({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast).requires_grad_());
        parameters.emplace_back("unused", at::ones({2}).requires_grad_());
        Sharded sharded(world, parameters);
        std::vector<Gradients> of_ranks;
        for (int rank = 0; rank < ranks; ++rank) {
          Gradients& gradients = of_ranks.emplace_back();
          for (std::size_t i = 0; i < parameters.size(); ++i) {
            const at::Tensor& parameter = parameters[i].second;
            const bool has_one = i + 1 < parameters.size() && (i != 3 || rank == 1);
            gradients.push_back(has_one ? values(i, 10 + rank, parameter.sizes().vec()).to(parameter.scalar_type())
                                        : at::Tensor());
            if (rank == world->rank()) parameter.mutable_grad() = gradients.back();
          }
        }
        sharded.reduce_gradients(message_bytes);
        Gradients mean = mean_of(of_ranks);
        for (std::size_t i = 0; i < parameters.size(); ++i)
          if (!sharded.is_own(parameters[i].second)) mean[i].reset();
        return difference(gradients_of(parameters), mean);
      });
      for (const double difference : by_rank) CHECK(difference < 1e-6);
    }
}

// Sizes from 0 to 999; in each second division one parameter is larger than all others together.
Named made_up_parameters(std::uint64_t seed) {
  at::Generator random = at::detail::createCPUGenerator(seed);
  const at::Tensor sizes = at::randint(1000, {1 + static_cast<std::int64_t>(seed % 40)}, random);
  Named parameters;
  for (std::int64_t i = 0; i < sizes.numel(); ++i)
    parameters.emplace_back(std::to_string(i), at::empty({sizes[i].item<std::int64_t>()}));
  if (seed % 2 == 0) parameters.emplace_back("dominating", at::empty({50'000}));
  return parameters;
}

TEST_CASE("Each parameter travels in one message, of at most twice its use or within the bytes that it may have") {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    CAPTURE(seed);
    const Named parameters = made_up_parameters(seed);
    const int ranks = 2 + static_cast<int>(seed / 2 % 7);
    std::vector<int> owners, messages_with(parameters.size()), expected;
    std::vector<bool> which;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      owners.push_back(static_cast<int>((i * 7 + seed) % static_cast<std::size_t>(ranks)));
      which.push_back((i + seed) % 5 != 0);
      expected.push_back(which[i] ? 1 : 0);
    }
    constexpr std::int64_t kBytes = 16'000;
    for (const ShardMessage& message : shard_messages(parameters, owners, ranks, which, kBytes)) {
      std::int64_t used = 0;
      for (std::size_t rank = 0; rank < message.by_owner.size(); ++rank) {
        std::int64_t of_rank = 0;
        for (const std::size_t i : message.by_owner[rank]) {
          CHECK(owners[i] == static_cast<int>(rank));
          messages_with[i] += 1;
          of_rank += parameters[i].second.numel();
        }
        CHECK(of_rank <= message.part);
        used += of_rank;
      }
      const std::int64_t sent = message.sole_owner() ? used : message.part * ranks;
      CHECK(sent <= std::max(2 * used, kBytes / static_cast<std::int64_t>(sizeof(float))));
    }
    CHECK(messages_with == expected);
  }
}

TEST_CASE("Ranks whose parameters differ, and state of unknown parameters, are errors") {
  const auto errors = errors_in_ranks(2, [](const std::shared_ptr<World>& world) {
    const Sharded sharded(world, {{"weight", at::ones({2 + world->rank()})}});
  });
  for (const std::string& error : errors)
    CHECK(error.find("rank 0 has weight: Float [2]; rank 1 has weight: Float [3]") != std::string::npos);
  const Sharded sharded(World::alone(), {{"weight", at::ones({2})}});
  CHECK_THROWS_AS(sharded.own_part({{"other", "step", at::ones({})}}), ConfigError);
  CHECK_THROWS_AS(sharded.owner_of(at::ones({2})), ConfigError);
}

}  // namespace
}  // namespace composer::dist::test::sharded_test
