"""What one searched parameter may be: a float, an integer, one of ordered numbers, a category."""

from tao_ray.space._choices import Categorical, Ordered
from tao_ray.space._numeric import Float, Integer
from tao_ray.space._parameter import Parameter, SpaceError

__all__ = ["Categorical", "Float", "Integer", "Ordered", "Parameter", "SpaceError"]
