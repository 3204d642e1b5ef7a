// Precompiled: what most test files pay for.
#pragma once
#include <doctest/doctest.h>
#include <nlohmann/json.hpp>

#include "composer/pch.h"
