"""Search spaces: typed parameters, constraints between them, and their image in the unit cube.

Plain Python and numpy; neither Ray nor TAO is known here.
"""

from tao_ray.space.constraints import AtMost, Condition, Constraint, GreaterThan
from tao_ray.space.parameters import Categorical, Float, Integer, Ordered, Parameter, SpaceError
from tao_ray.space.space import SearchSpace

__all__ = [
    "AtMost",
    "Categorical",
    "Condition",
    "Constraint",
    "Float",
    "GreaterThan",
    "Integer",
    "Ordered",
    "Parameter",
    "SearchSpace",
    "SpaceError",
]
