#include <functional>
#include <string>
#include <vector>

#include <ATen/ATen.h>

#include "composer/core/error.h"
#include "composer/dist/world.h"
#include "tests/support/doctest.h"
#include "tests/support/in_ranks.h"

namespace composer::dist::collectives_test {
namespace {

using test::in_ranks;

constexpr int LARGEST = 4;  // worlds of 1 to 4 ranks
const std::vector<at::ScalarType> DTYPES{at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kLong,
                                         at::kInt,   at::kShort,  at::kChar, at::kByte,     at::kBool};

// Values that differ by element and rank, and that every dtype can hold.
at::Tensor values(int rank, at::ScalarType dtype) { return ((at::arange(12) + 5 * rank) % 7).view({3, 4}).to(dtype); }

struct Form {
  std::string name;
  std::function<at::Tensor(const at::Tensor&)> of;  // the same values, elsewhere in memory
};
const std::vector<Form> FORMS{
    {"contiguous", [](const at::Tensor& given) { return given.clone(); }},
    {"transposed", [](const at::Tensor& given) { return given.t().contiguous().t(); }},
    {"a slice",
     [](const at::Tensor& given) {
       return at::stack({given, given}, -1).select(-1, 1);
     }},
};

at::Tensor of_all(int size, at::ScalarType dtype, const std::function<at::Tensor(at::Tensor, at::Tensor)>& combine) {
  at::Tensor all = values(0, dtype);
  for (int rank = 1; rank < size; ++rank) all = combine(all, values(rank, dtype)).to(dtype);
  return all;
}

void check_reductions(World& world, at::ScalarType dtype, const Form& form) {
  const auto sum = [](const at::Tensor& a, const at::Tensor& b) {
    return a.scalar_type() == at::kBool ? at::logical_or(a, b) : a + b;
  };
  const auto max = [](const at::Tensor& a, const at::Tensor& b) { return at::maximum(a, b); };
  const auto min = [](const at::Tensor& a, const at::Tensor& b) { return at::minimum(a, b); };
  at::Tensor tensor = form.of(values(world.rank(), dtype));
  world.sum(tensor);
  CHECK(at::equal(tensor, of_all(world.size(), dtype, sum)));
  tensor = form.of(values(world.rank(), dtype));
  world.max(tensor);
  CHECK(at::equal(tensor, of_all(world.size(), dtype, max)));
  tensor = form.of(values(world.rank(), dtype));
  world.min(tensor);
  CHECK(at::equal(tensor, of_all(world.size(), dtype, min)));
  tensor = form.of(values(world.rank(), dtype));
  const auto wait = world.start_sum(tensor);
  wait();
  CHECK(at::equal(tensor, of_all(world.size(), dtype, sum)));
}

void check_moves(World& world, at::ScalarType dtype, const Form& form) {
  const int last = world.size() - 1;
  at::Tensor tensor = form.of(values(world.rank(), dtype));
  world.broadcast(tensor, last);
  CHECK(at::equal(tensor, values(last, dtype)));

  const std::vector<at::Tensor> all = world.all_gather(form.of(values(world.rank(), dtype)));
  REQUIRE(all.size() == static_cast<std::size_t>(world.size()));
  for (int rank = 0; rank < world.size(); ++rank) CHECK(at::equal(all[rank], values(rank, dtype)));

  at::Tensor gathered = at::zeros({world.size(), 3, 4}, dtype);
  world.all_gather_into(gathered, form.of(values(world.rank(), dtype)));
  CHECK(at::equal(gathered, at::stack(all)));

  // Rank r sends r + 2p to rank p.
  const at::Tensor sent = world.rank() + 2 * at::arange(world.size()).repeat_interleave(3);
  const at::Tensor received = at::zeros({3 * world.size()}, dtype);
  world.exchange(received, (sent % 7).to(dtype));
  const at::Tensor expected = 2 * world.rank() + at::arange(world.size()).repeat_interleave(3);
  CHECK(at::equal(received, (expected % 7).to(dtype)));

  if (dtype == at::kBool) return;  // its sum is checked above
  const at::Tensor part = form.of(at::zeros({3, 4}, dtype));
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < world.size(); ++rank) parts.push_back(values(world.rank() + rank, dtype));
  world.reduce_scatter(part, at::stack(parts));
  at::Tensor total = at::zeros({3, 4}, dtype);
  for (int rank = 0; rank < world.size(); ++rank) total += values(rank + world.rank(), dtype);
  CHECK(at::equal(part, total));
}

TEST_CASE("collectives compute the same on 1 to 4 ranks, for every dtype and layout of a tensor") {
  for (int size = 1; size <= LARGEST; ++size)
    in_ranks(size, [](World& world) {
      for (const at::ScalarType dtype : DTYPES)
        for (const Form& form : FORMS) {
          const std::string what =
              join(at::toString(dtype), ", ", form.name, ", rank ", world.rank(), " of ", world.size());
          CAPTURE(what);
          check_reductions(world, dtype, form);
          check_moves(world, dtype, form);
        }
    });
}

TEST_CASE("complex numbers are added up and moved") {
  in_ranks(2, [](World& world) {
    const at::Tensor tensor = at::complex(at::ones({3}), at::full({3}, 1.0F + static_cast<float>(world.rank())));
    const at::Tensor copy = tensor.clone();
    world.sum(tensor);
    CHECK(at::equal(tensor, at::complex(at::full({3}, 2.0F), at::full({3}, 3.0F))));
    world.broadcast(copy, 1);
    CHECK(at::equal(at::imag(copy), at::full({3}, 2.0F)));
  });
}

TEST_CASE("collectives of tensors without elements, and of single numbers") {
  for (int size = 1; size <= 2; ++size)
    in_ranks(size, [](World& world) {
      const at::Tensor none = at::zeros({2, 0});
      world.sum(none);
      world.broadcast(none);
      world.start_sum(none)();
      world.all_gather_into(at::zeros({world.size(), 2, 0}), none);
      world.reduce_scatter(none, at::zeros({world.size(), 2, 0}));
      world.exchange(at::zeros({0}), at::zeros({0}));
      for (const at::Tensor& each : world.all_gather(none)) CHECK(each.sizes() == none.sizes());
      world.broadcast(std::vector<at::Tensor>{});
      world.broadcast(std::vector<at::Tensor>{none, none});
      const at::Tensor number = at::full({}, world.rank() + 1, at::kLong);
      world.max(number);
      CHECK(number.item<int>() == world.size());
      CHECK(world.all_gather(number).back().dim() == 0);
    });
}

TEST_CASE("a list of tensors of many dtypes and layouts gets the root's values") {
  const auto list = [](int rank) {
    return std::vector<at::Tensor>{at::full({3}, rank),
                                   at::zeros({0}),
                                   values(rank, at::kShort).t(),
                                   at::full({}, rank % 2 == 1, at::kBool),
                                   at::full({300, 300}, rank, at::kDouble),
                                   values(rank, at::kHalf)};
  };
  in_ranks(3, [&](World& world) {
    const std::vector<at::Tensor> tensors = list(world.rank()), expected = list(2);
    world.broadcast(tensors, 2);
    for (std::size_t i = 0; i < tensors.size(); ++i) CHECK(at::equal(tensors[i], expected[i]));
  });
}

TEST_CASE("collectives change parameters that require gradients, without a trace in autograd") {
  in_ranks(2, [](World& world) {
    const at::Tensor parameter = at::full({2, 3}, world.rank()).to(at::kFloat).set_requires_grad(true);
    const at::Tensor transposed = at::full({2, 3}, world.rank()).to(at::kFloat).t().set_requires_grad(true);
    world.broadcast(parameter, 1);
    world.broadcast(std::vector<at::Tensor>{transposed, parameter}, 1);
    world.sum(parameter);
    CHECK(at::equal(parameter, at::full({2, 3}, 2.0F)));
    CHECK(at::equal(transposed, at::full({3, 2}, 1.0F)));
    CHECK(parameter.is_leaf());
    CHECK(transposed.is_leaf());
  });
}

TEST_CASE("sums have equal bits on all ranks") {
  std::vector<at::Tensor> sums(4);
  in_ranks(4, [&](World& world) {
    const at::Tensor tensor = at::arange(10007).to(at::kFloat).mul(0.37 + world.rank()).sin().mul(1e3);
    world.sum(tensor);
    sums[world.rank()] = tensor;
  });
  for (const at::Tensor& sum : sums) CHECK(at::equal(sum, sums[0]));
}

TEST_CASE("texts of any length, which may differ by rank, are sent whole") {
  const auto text = [](int rank) {
    return rank == 1 ? std::string() : std::string(100 * rank + 3, static_cast<char>(rank));
  };
  for (int size = 1; size <= 3; ++size)
    in_ranks(size, [&](World& world) {
      const std::vector<std::string> all = world.all_gather(text(world.rank()));
      REQUIRE(all.size() == static_cast<std::size_t>(world.size()));
      for (int rank = 0; rank < world.size(); ++rank) {
        CHECK(all[rank] == text(rank));
        CHECK(world.broadcast(text(world.rank()), rank) == text(rank));
      }
    });
}

TEST_CASE("several sums may be under way at once") {
  in_ranks(2, [](World& world) {
    std::vector<at::Tensor> tensors;
    std::vector<std::function<void()>> waits;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(at::full({1000}, i + world.rank()));
      waits.push_back(world.start_sum(tensors.back()));
    }
    for (const auto& wait : waits) wait();
    for (int i = 0; i < 20; ++i) CHECK(at::equal(tensors[i], at::full({1000}, 2 * i + 1)));
  });
}

TEST_CASE("parts that do not fit together are refused before anything is sent") {
  in_ranks(2, [](World& world) {
    CHECK_THROWS_AS(world.reduce_scatter(at::zeros({2}), at::zeros({5})), Error);
    CHECK_THROWS_AS(world.all_gather_into(at::zeros({4}), at::zeros({2}, at::kLong)), Error);
    CHECK_THROWS_AS(world.exchange(at::zeros({3}), at::zeros({3})), Error);
    world.barrier();
  });
}

TEST_CASE("one rank alone has no group and does nothing") {
  const auto world = World::alone();
  const at::Tensor tensor = at::ones({2});
  world->barrier();
  world->sum(tensor);
  CHECK(at::equal(tensor, at::ones({2})));
  CHECK(world->is_alone());
  CHECK(!world->group());
  world->shutdown();
  world->sum(tensor);  // still alone
}

TEST_CASE("collectives after shutdown() are refused") {
  std::vector<std::shared_ptr<World>> worlds = World::in_threads(2);
  {
    std::vector<std::jthread> threads;
    for (const auto& world : worlds) threads.emplace_back([world] { world->shutdown(); });
  }
  CHECK_THROWS_AS(worlds[0]->sum(at::ones({2})), Error);
  worlds[0]->shutdown();  // a second time does nothing
}

TEST_CASE("With check_collectives, ranks that do different things all learn what each does") {
  struct Row {
    std::function<void(World&)> of_rank_0, of_rank_1;
    const char* text;
  };
  const auto sum_of = [](std::int64_t size, at::ScalarType dtype = at::kFloat) {
    return [=](World& world) { world.sum(at::ones({size}, dtype)); };
  };
  for (const Row& row : std::vector<Row>{
           {sum_of(3), sum_of(4), "rank 0: sum of Float [3] on cpu; rank 1: sum of Float [4] on cpu"},
           {sum_of(3), sum_of(3, at::kDouble), "rank 1: sum of Double [3]"},
           {sum_of(3), [](World& world) { world.max(at::ones({3})); }, "rank 1: max of Float [3]"},
           {sum_of(0), [](World& world) { world.barrier(); }, "rank 0: sum of Float [0] on cpu; rank 1: barrier"},
           {[](World& world) { world.broadcast(at::ones({3})); }, [](World& world) { world.all_gather(at::ones({3})); },
            "rank 0: broadcast of Float [3] on cpu; rank 1: all_gather"},
       }) {
    CAPTURE(row.text);
    std::vector<std::string> errors(2);
    try {
      test::in_ranks(2,
                     [&](World& world) {
                       try {
                         (world.rank() == 0 ? row.of_rank_0 : row.of_rank_1)(world);
                       } catch (const Error& error) {
                         errors[static_cast<std::size_t>(world.rank())] = error.what();
                       }
                     },
                     {.check_collectives = true});
    } catch (const PeerLost&) {  // NOLINT(bugprone-empty-catch)
    }
    for (const std::string& error : errors) CHECK(error.find(row.text) != std::string::npos);
  }
}

}  // namespace
}  // namespace composer::dist::collectives_test
