// Followers: what compile(module) returns.
//
// A follower is an object beside an original: an instance of a class derived
// from the original's, over the same __dict__. Calling it calls a
// CompiledFunction with the original as first argument. Attributes are read,
// written and deleted on the original, when they are, so nothing has to be kept
// in step; methods of the original's class are bound to the follower instead,
// so that `follower.eval()` gives the follower. `follower.forward` is compiled
// with the options of its calls, and bound to the original as in those; other
// methods run as they are. Only the class that CPython
// sees (type(), super(), special methods) is a copy of a fact: when the
// original has got another one (`m.__class__ = ...`: parametrisations, lazy
// modules, FSDP), the follower gets one derived from that at the next call or
// attribute.
//
// The classes are made in Python (framejit/_module.py) with the __slots__ below
// and the original's class as last base; make_follower_class() gives them the
// slots in C. An instance made otherwise (`type(self)()` in a method) has no
// original and is an object of the class like any other.
#pragma once

#include "frame_hook/py_ref.h"

namespace framejit {

inline constexpr const char* kFollowerOriginal = "_framejit_original";
inline constexpr const char* kFollowerSlots[4] = {
    "_framejit_asked", "_framejit_call", "_framejit_class", kFollowerOriginal};

// False: an error is set.
bool make_follower_class(PyTypeObject* type);
// derive(cls, follower class of now) -> (follower class for cls, compiled
// function).
void set_follower_deriver(PyObject* derive);
// A new reference; null with an error set.
PyObject* make_follower(PyTypeObject* type, PyObject* original, PyObject* call);

bool is_follower_class(PyTypeObject* type);
// Borrowed; null (no error): no follower.
PyObject* follower_original(PyObject* object);
// Where an instance has its original.
Py_ssize_t follower_original_offset(PyTypeObject* type);

}  // namespace framejit
